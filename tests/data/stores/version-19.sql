BEGIN TRANSACTION;
CREATE TABLE "alias" (
                session_id TEXT NOT NULL REFERENCES session, call_id TEXT NOT NULL, tool TEXT NOT NULL,
                raw_digest TEXT NOT NULL, ledger_key TEXT, hold_id TEXT REFERENCES hold ON DELETE CASCADE,
                PRIMARY KEY (session_id, call_id)) WITHOUT ROWID;
INSERT INTO "alias" VALUES('ses_f0a96a47b2be86d811e0b97e','provider:c1','pay','29a9829b3c03948275ca3be1cb7b633c0207849d2c0bd3215060f2ac05abce64','9765a6d6767630435d7ceef7704bfbad2e3ce35fb7522d98a38ee63fd1b443b5',NULL);
INSERT INTO "alias" VALUES('ses_f0a96a47b2be86d811e0b97e','provider:c2','fail','d235bf2e2dc7927c689aecdeee215da93f8d203fe31b1d54f11b87a07845b5f0','ff2158187ce72a210342b806c1d8c0e58c64cb8e3f1b28a961c23156d2c10fae',NULL);
INSERT INTO "alias" VALUES('ses_f0a96a47b2be86d811e0b97e','provider:c3','wire','47c468f0b3d7df5c63a2b7288b63b3f41c140bfbbad004324583dc3cc0f639cd',NULL,'conf_3a997f844ca26cf8db034891');
CREATE TABLE audit_chain (
                number INTEGER PRIMARY KEY, chain TEXT NOT NULL, file TEXT NOT NULL, seq INTEGER NOT NULL,
                head TEXT NOT NULL, at INTEGER NOT NULL, mac TEXT NOT NULL);
CREATE TABLE audit_owner (
                owner TEXT PRIMARY KEY, audited_until INTEGER NOT NULL, taken_by TEXT) WITHOUT ROWID;
CREATE TABLE audit_subject (
                tenant TEXT NOT NULL, user TEXT NOT NULL, pseudonym TEXT NOT NULL UNIQUE, secret BLOB NOT NULL,
                PRIMARY KEY (tenant, user)) WITHOUT ROWID;
INSERT INTO "audit_subject" VALUES('','ana','user_2190563b34b525c2',X'0436ECD23995F92DF4D242D907671F033B3D3D75CED755B5E269A1AB878F949F');
CREATE TABLE block (
        tenant TEXT NOT NULL, user TEXT NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (tenant, user)) WITHOUT ROWID;
INSERT INTO "block" VALUES('','cyd',1125899906842624);
CREATE TABLE conversation (
                session_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, user TEXT, key TEXT NOT NULL, sealed TEXT NOT NULL,
                owner TEXT NOT NULL, live INTEGER NOT NULL, passing INTEGER NOT NULL, created_at INTEGER NOT NULL,
                updated_at INTEGER NOT NULL, document TEXT NOT NULL);
CREATE TABLE conversation_turn (
                session_id TEXT NOT NULL REFERENCES conversation ON DELETE CASCADE, message_id TEXT NOT NULL,
                position INTEGER NOT NULL, number INTEGER NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL,
                attempts INTEGER NOT NULL, answer TEXT NOT NULL, last_event INTEGER NOT NULL,
                PRIMARY KEY (session_id, message_id)) WITHOUT ROWID;
CREATE TABLE credential (
                tenant TEXT NOT NULL, user TEXT NOT NULL, connection TEXT NOT NULL, sealed TEXT NOT NULL,
                key_id TEXT NOT NULL, version INTEGER NOT NULL, updated_at INTEGER NOT NULL, refresh_owner TEXT,
                refresh_until INTEGER NOT NULL, PRIMARY KEY (tenant, user, connection)) WITHOUT ROWID;
CREATE TABLE document (
                kind TEXT NOT NULL, id TEXT NOT NULL, tenant TEXT NOT NULL, user TEXT, body TEXT NOT NULL,
                expires_at INTEGER NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID;
CREATE TABLE file_import (source TEXT PRIMARY KEY, position TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE forgetting (times INTEGER NOT NULL, salt BLOB NOT NULL);
INSERT INTO "forgetting" VALUES(1,X'97BB6EA765A045D83AE5EF22F87157FF2DB4638061A7CD0F0DD57DBEB73273F5');
CREATE TABLE forgotten_block (digest TEXT PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE handrail_migration (
                version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL);
INSERT INTO "handrail_migration" VALUES(1,'sessions, ledger, confirmations, operating',1795120356181);
INSERT INTO "handrail_migration" VALUES(2,'policies of sessions',1795120356181);
INSERT INTO "handrail_migration" VALUES(3,'fewer pages for a claim',1795120356181);
INSERT INTO "handrail_migration" VALUES(4,'one small index of open calls',1795120356181);
INSERT INTO "handrail_migration" VALUES(5,'call ids without an index of keys',1795120356181);
INSERT INTO "handrail_migration" VALUES(6,'turns that were left',1795120356181);
INSERT INTO "handrail_migration" VALUES(7,'when a session was saved',1795120356181);
INSERT INTO "handrail_migration" VALUES(8,'processes of owners',1795120356181);
INSERT INTO "handrail_migration" VALUES(9,'checkpoints of the audit log, who has answered calls, and what is kept of forgotten users',1795120356181);
INSERT INTO "handrail_migration" VALUES(10,'what was shown of a request, and what became of it',1795120356181);
INSERT INTO "handrail_migration" VALUES(11,'who approved a request',1795120356181);
INSERT INTO "handrail_migration" VALUES(12,'heartbeats, and the order in which rows were made',1795120356181);
INSERT INTO "handrail_migration" VALUES(13,'conversations of a server, and what was imported from files of its own',1795120356181);
INSERT INTO "handrail_migration" VALUES(14,'keys of a server',1795120356181);
INSERT INTO "handrail_migration" VALUES(15,'tickets for voice, and requests that may come again',1795120356181);
INSERT INTO "handrail_migration" VALUES(16,'how tools were used, by day',1795120356181);
INSERT INTO "handrail_migration" VALUES(17,'credentials of people, and authorizations that are under way',1795120356181);
INSERT INTO "handrail_migration" VALUES(18,'roles of keys, and the versions of tools that a session is pinned to',1795120356181);
INSERT INTO "handrail_migration" VALUES(19,'documents of hosts',1795120356181);
CREATE TABLE hold (
        hold_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, session_id TEXT NOT NULL REFERENCES session, user TEXT,
        turn INTEGER NOT NULL, tool TEXT NOT NULL, tool_hash TEXT NOT NULL, args_digest TEXT NOT NULL,
        args TEXT NOT NULL, raw_args TEXT NOT NULL, preview TEXT NOT NULL,
        channel TEXT NOT NULL, ledger_key TEXT NOT NULL,
        ordinal INTEGER NOT NULL, expires_at INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'consumed', 'declined', 'expired', 'superseded')),
        alias TEXT, repaired INTEGER NOT NULL, consumed_by TEXT, call_id TEXT, asked_turn INTEGER NOT NULL DEFAULT 0, replaced_by TEXT, told_turn INTEGER, approver TEXT, approved_via TEXT);
INSERT INTO "hold" VALUES('conf_3a997f844ca26cf8db034891','','ses_f0a96a47b2be86d811e0b97e','ana',1,'wire','873247c999a1633b5cc90bf22267bd904b3642ba437225220854d824d9984965','47c468f0b3d7df5c63a2b7288b63b3f41c140bfbbad004324583dc3cc0f639cd','{"q":"c"}','{"q":"c"}','Run wire.
q: c','any','2acbef36e0b5665bbf1b37540e6825447cf5eb7a32484742c52240c23c2fb297',1,1795120656361,'pending','{"call_id":"provider:c3","tool":"wire","raw_digest":"47c468f0b3d7df5c63a2b7288b63b3f41c140bfbbad004324583dc3cc0f639cd","ledger_key":null,"hold_id":"conf_3a997f844ca26cf8db034891"}',0,NULL,'c3',1,NULL,NULL,NULL,NULL);
CREATE TABLE "hold_token" (
                hold_id TEXT NOT NULL REFERENCES hold ON DELETE CASCADE, token_hash TEXT NOT NULL, shown TEXT NOT NULL,
                PRIMARY KEY (hold_id, token_hash));
INSERT INTO "hold_token" VALUES('conf_3a997f844ca26cf8db034891','b917898645b3f1ec985e29dc130c7a21df272e6f8ebcc86c101030f127e98726','b204eb9fb7dc7615ef96de6bb2a66ab0caebbc5343b2353967607580732380ca');
CREATE TABLE idempotent_request (
                digest TEXT PRIMARY KEY, owner TEXT NOT NULL, session_id TEXT, sealed TEXT NOT NULL,
                made_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE ledger (
        key TEXT PRIMARY KEY, tenant TEXT NOT NULL, session_id TEXT NOT NULL REFERENCES session, user TEXT,
        turn INTEGER NOT NULL, ordinal INTEGER NOT NULL, tool TEXT NOT NULL, tool_hash TEXT NOT NULL,
        registry_version TEXT NOT NULL, args_digest TEXT NOT NULL, args TEXT NOT NULL,
        effects TEXT NOT NULL CHECK (effects IN ('none', 'idempotent', 'unsafe')),
        state TEXT NOT NULL CHECK (state IN ('running', 'succeeded', 'failed', 'cancelled', 'unknown')),
        fence INTEGER NOT NULL, owner TEXT NOT NULL, claim_id TEXT NOT NULL, lease_until INTEGER NOT NULL,
        created_at INTEGER NOT NULL, finished_at INTEGER, envelope TEXT, evicted INTEGER NOT NULL DEFAULT 0,
        hold_id TEXT);
INSERT INTO "ledger" VALUES('9765a6d6767630435d7ceef7704bfbad2e3ce35fb7522d98a38ee63fd1b443b5','','ses_f0a96a47b2be86d811e0b97e','ana',1,1,'pay','cdcfd12ff0bbcc4fa1988c796bb4929b1a60d46508a5a74f3dfc5df03f704728','1.0.19b2ecc0','29a9829b3c03948275ca3be1cb7b633c0207849d2c0bd3215060f2ac05abce64','{"q":"a"}','unsafe','succeeded',1,'owner-f875effc59eaaed6','owner-f875effc59eaaed6-1',1795120371328,1795120356328,1795120356333,'{"ok":true,"data":{"paid":"a"},"intents":[],"meta":{"toolId":"pay","toolVersion":"1.0.0","registryVersion":"1.0.19b2ecc0","duration":13.58,"responseSchemaVersion":"1.0.0","budget":{"retrieval":5}}}',0,NULL);
INSERT INTO "ledger" VALUES('ff2158187ce72a210342b806c1d8c0e58c64cb8e3f1b28a961c23156d2c10fae','','ses_f0a96a47b2be86d811e0b97e','ana',1,1,'fail','522c9da3ab721ab534e974f208abe5cfc70685f219fbd616c887a3a3d0b4b87c','1.0.19b2ecc0','d235bf2e2dc7927c689aecdeee215da93f8d203fe31b1d54f11b87a07845b5f0','{"q":"b"}','unsafe','unknown',1,'owner-f875effc59eaaed6','owner-f875effc59eaaed6-2',1795120371341,1795120356341,NULL,'{"ok":false,"error":{"type":"INTERNAL","message":"\"fail\" failed unexpectedly.","retryable":false,"partialSideEffects":true},"intents":[],"meta":{"toolId":"fail","toolVersion":"1.0.0","registryVersion":"1.0.19b2ecc0","duration":7.978,"responseSchemaVersion":"1.0.0","budget":{"retrieval":5}}}',0,NULL);
INSERT INTO "ledger" VALUES('6894007a4dfb0bc26d484abfe1b1174d0aab1864e54d37cf34a942baf97cc55b','','ses_03ad82cee09b8ffac12af737',NULL,1,1,'pay','cdcfd12ff0bbcc4fa1988c796bb4929b1a60d46508a5a74f3dfc5df03f704728','1.0.19b2ecc0','a69fbbcf7209c6f659a75067c9fa03037c2ae23f55a6f854d5994209129bbbf6','{}','unsafe','succeeded',1,'owner-f875effc59eaaed6','owner-f875effc59eaaed6-3',1795120371363,1795120356363,1795120356364,NULL,1,NULL);
CREATE TABLE owner (
                owner TEXT PRIMARY KEY, boot TEXT NOT NULL, namespace TEXT NOT NULL, pid INTEGER NOT NULL,
                started TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE pending_authorization (
                digest TEXT PRIMARY KEY, tenant TEXT NOT NULL, user TEXT NOT NULL, connection TEXT NOT NULL,
                sealed TEXT NOT NULL, expires_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE rate (
        scope TEXT NOT NULL, window_start INTEGER NOT NULL, used INTEGER NOT NULL,
        PRIMARY KEY (scope, window_start)) WITHOUT ROWID;
CREATE TABLE server_key (
                name TEXT PRIMARY KEY, hash TEXT NOT NULL, role TEXT NOT NULL, user TEXT, created TEXT NOT NULL, roles TEXT NOT NULL DEFAULT '[]');
CREATE TABLE server_key_changes (times INTEGER NOT NULL);
INSERT INTO "server_key_changes" VALUES(0);
CREATE TABLE session (
        session_id TEXT PRIMARY KEY, token_hash TEXT NOT NULL, tenant TEXT NOT NULL, user TEXT, mode TEXT NOT NULL,
        attributes TEXT NOT NULL, registry_version TEXT NOT NULL, connection INTEGER NOT NULL, turn INTEGER NOT NULL,
        active INTEGER NOT NULL, state TEXT NOT NULL, counters TEXT NOT NULL, owner TEXT NOT NULL,
        pruned INTEGER NOT NULL DEFAULT 0, policy TEXT NOT NULL DEFAULT '{}', current_turn INTEGER NOT NULL DEFAULT 0, saved_at INTEGER NOT NULL DEFAULT 0, versions TEXT NOT NULL DEFAULT '{}');
INSERT INTO "session" VALUES('ses_f0a96a47b2be86d811e0b97e','75c5ecf9e714a25b34040ad56f6b207dafff160ca90d744862ffc49df9196190','','ana','text','{"plan":"pro"}','1.0.19b2ecc0',1,1,1,'{"mode":"text","isActive":true,"pendingEndVoiceSession":null,"shouldSuppressAudio":false,"shouldSuppressTranscript":false,"pendingMessage":null,"isModelGenerating":false,"userAudioChunkCount":0,"interruptionSent":false,"audioChunkCounter":0,"lastAudioFingerprint":null}','{"turn":1,"retrieval":0,"total":3,"toolMs":22,"refusals":0,"refused":0,"empties":{},"declined":[],"unknown":[["fail","d235bf2e2dc7927c689aecdeee215da93f8d203fe31b1d54f11b87a07845b5f0","ff2158187ce72a210342b806c1d8c0e58c64cb8e3f1b28a961c23156d2c10fae"]],"identical":{"7445b5278e2752c3":1,"01280f769961d85e":1,"50e6b33dedac488c":1}}','owner-f875effc59eaaed6',0,'{}',1,1795120356366,'{}');
INSERT INTO "session" VALUES('ses_03ad82cee09b8ffac12af737','','',NULL,'text','{}','1.0.19b2ecc0',2,1,0,'{}','{}','owner-f875effc59eaaed6',1,'{}',1,0,'{}');
CREATE TABLE switch (tool TEXT PRIMARY KEY, reason TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "switch" VALUES('other','being mended');
CREATE TABLE tool_usage (
                day TEXT NOT NULL, tenant TEXT NOT NULL, tool TEXT NOT NULL, version TEXT NOT NULL,
                calls INTEGER NOT NULL, counts TEXT NOT NULL, PRIMARY KEY (day, tenant, tool, version)) WITHOUT ROWID;
INSERT INTO "tool_usage" VALUES('2026-11-19','','fail','1.0.0',1,'{"outcomes":{"INTERNAL":1},"executed":1,"latency":{"count":1,"sum":7.978,"zero":0,"bins":{"104":1}},"size":{"count":1,"sum":0.0,"zero":1,"bins":{}},"calls":1,"sessions":{"n":1,"sums":{"calls":1,"errors":1,"latency":7.978},"products":{"calls*calls":1,"calls*errors":1,"calls*latency":7.978,"errors*errors":1,"errors*latency":7.978,"latency*latency":63.648483999999996}}}');
INSERT INTO "tool_usage" VALUES('2026-11-19','','pay','1.0.0',2,'{"outcomes":{"ok":2},"executed":2,"latency":{"count":2,"sum":14.239,"zero":0,"bins":{"131":1,"-20":1}},"size":{"count":2,"sum":24.0,"zero":0,"bins":{"125":2}},"calls":2,"sessions":{"n":2,"sums":{"calls":2,"latency":14.239},"products":{"calls*calls":2,"calls*latency":14.239,"latency*latency":184.850681}}}');
INSERT INTO "tool_usage" VALUES('2026-11-19','','wire','1.0.0',1,'{"held":1,"calls":1,"sessions":{"n":1,"sums":{"calls":1,"held":1},"products":{"calls*calls":1,"calls*held":1,"held*held":1}}}');
CREATE TABLE turn_input (
        session_id TEXT NOT NULL REFERENCES session, input_id TEXT NOT NULL, turn INTEGER NOT NULL,
        PRIMARY KEY (session_id, input_id)) WITHOUT ROWID;
INSERT INTO "turn_input" VALUES('ses_f0a96a47b2be86d811e0b97e','m1',1);
CREATE TABLE turn_left (
                session_id TEXT NOT NULL REFERENCES session, turn INTEGER NOT NULL, counters TEXT NOT NULL,
                PRIMARY KEY (session_id, turn)) WITHOUT ROWID;
CREATE TABLE usage_writer (
                writer TEXT PRIMARY KEY, batch INTEGER NOT NULL, written_at INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "usage_writer" VALUES('owner-f875effc59eaaed6',1,1795120356366);
CREATE TABLE voice_ticket (
                digest TEXT PRIMARY KEY, session_id TEXT NOT NULL, sealed TEXT NOT NULL, key TEXT NOT NULL,
                expires_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX ledger_finished ON ledger (finished_at) WHERE finished_at IS NOT NULL;
CREATE UNIQUE INDEX hold_open ON hold (session_id, tool, args_digest)
        WHERE state IN ('pending', 'approved');
CREATE INDEX hold_session ON hold (session_id, state);
CREATE INDEX ledger_open ON ledger (session_id, turn, tool, args_digest)
                WHERE state IN ('running', 'unknown');
CREATE INDEX alias_hold ON alias (hold_id) WHERE hold_id IS NOT NULL;
CREATE INDEX audit_chain_name ON audit_chain (chain);
CREATE INDEX conversation_user ON conversation (tenant, user);
CREATE INDEX conversation_key ON conversation (key);
CREATE INDEX conversation_updated ON conversation (updated_at);
CREATE INDEX voice_ticket_expiry ON voice_ticket (expires_at);
CREATE INDEX idempotent_request_age ON idempotent_request (made_at);
CREATE INDEX credential_key ON credential (key_id);
CREATE INDEX pending_authorization_expiry ON pending_authorization (expires_at);
CREATE INDEX document_expiry ON document (expires_at);
CREATE INDEX document_user ON document (tenant, user);
COMMIT;
