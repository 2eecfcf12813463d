BEGIN TRANSACTION;
CREATE TABLE "alias" (
                session_id TEXT NOT NULL REFERENCES session, call_id TEXT NOT NULL, tool TEXT NOT NULL,
                raw_digest TEXT NOT NULL, ledger_key TEXT, hold_id TEXT REFERENCES hold ON DELETE CASCADE,
                PRIMARY KEY (session_id, call_id)) WITHOUT ROWID;
INSERT INTO "alias" VALUES('ses_bec372c46ca6fd32d1445ade','provider:c1','pay','29a9829b3c03948275ca3be1cb7b633c0207849d2c0bd3215060f2ac05abce64','b975200e8d05a1bcf40695223e21b8c528c96f232082280802a71290925f4df1',NULL);
INSERT INTO "alias" VALUES('ses_bec372c46ca6fd32d1445ade','provider:c2','fail','d235bf2e2dc7927c689aecdeee215da93f8d203fe31b1d54f11b87a07845b5f0','75db801f44f08b19ada365631f4ae314c0575ceeccd69126be5bda15766770ec',NULL);
INSERT INTO "alias" VALUES('ses_bec372c46ca6fd32d1445ade','provider:c3','wire','47c468f0b3d7df5c63a2b7288b63b3f41c140bfbbad004324583dc3cc0f639cd',NULL,'conf_48b6a3773011f244fd5c5c87');
CREATE TABLE audit_chain (
                number INTEGER PRIMARY KEY, chain TEXT NOT NULL, file TEXT NOT NULL, seq INTEGER NOT NULL,
                head TEXT NOT NULL, at INTEGER NOT NULL, mac TEXT NOT NULL);
CREATE TABLE audit_owner (
                owner TEXT PRIMARY KEY, audited_until INTEGER NOT NULL, taken_by TEXT) WITHOUT ROWID;
CREATE TABLE audit_subject (
                tenant TEXT NOT NULL, user TEXT NOT NULL, pseudonym TEXT NOT NULL UNIQUE, secret BLOB NOT NULL,
                PRIMARY KEY (tenant, user)) WITHOUT ROWID;
INSERT INTO "audit_subject" VALUES('','ana','user_7a842871aceb6bf5',X'9A47A39504D7B71402962D87BB8FED743B8AF4A28531467C7ED9AAF4897BA629');
CREATE TABLE block (
        tenant TEXT NOT NULL, user TEXT NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (tenant, user)) WITHOUT ROWID;
INSERT INTO "block" VALUES('','cyd',1125899906842624);
CREATE TABLE forgetting (times INTEGER NOT NULL, salt BLOB NOT NULL);
INSERT INTO "forgetting" VALUES(1,X'64E6E980A0E8DE2DD5C77A3477F5FB4DDB1C3212BAA5FD120A352C4700F034B3');
CREATE TABLE forgotten_block (digest TEXT PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE handrail_migration (
                version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL);
INSERT INTO "handrail_migration" VALUES(1,'sessions, ledger, confirmations, operating',1794988536741);
INSERT INTO "handrail_migration" VALUES(2,'policies of sessions',1794988536741);
INSERT INTO "handrail_migration" VALUES(3,'fewer pages for a claim',1794988536741);
INSERT INTO "handrail_migration" VALUES(4,'one small index of open calls',1794988536741);
INSERT INTO "handrail_migration" VALUES(5,'call ids without an index of keys',1794988536741);
INSERT INTO "handrail_migration" VALUES(6,'turns that were left',1794988536741);
INSERT INTO "handrail_migration" VALUES(7,'when a session was saved',1794988536741);
INSERT INTO "handrail_migration" VALUES(8,'processes of owners',1794988536741);
INSERT INTO "handrail_migration" VALUES(9,'checkpoints of the audit log, who has answered calls, and what is kept of forgotten users',1794988536741);
INSERT INTO "handrail_migration" VALUES(10,'what was shown of a request, and what became of it',1794988536741);
INSERT INTO "handrail_migration" VALUES(11,'who approved a request',1794988536741);
CREATE TABLE hold (
        hold_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, session_id TEXT NOT NULL REFERENCES session, user TEXT,
        turn INTEGER NOT NULL, tool TEXT NOT NULL, tool_hash TEXT NOT NULL, args_digest TEXT NOT NULL,
        args TEXT NOT NULL, raw_args TEXT NOT NULL, preview TEXT NOT NULL,
        channel TEXT NOT NULL, ledger_key TEXT NOT NULL,
        ordinal INTEGER NOT NULL, expires_at INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'consumed', 'declined', 'expired', 'superseded')),
        alias TEXT, repaired INTEGER NOT NULL, consumed_by TEXT, call_id TEXT, asked_turn INTEGER NOT NULL DEFAULT 0, replaced_by TEXT, told_turn INTEGER, approver TEXT, approved_via TEXT);
INSERT INTO "hold" VALUES('conf_48b6a3773011f244fd5c5c87','','ses_bec372c46ca6fd32d1445ade','ana',1,'wire','873247c999a1633b5cc90bf22267bd904b3642ba437225220854d824d9984965','47c468f0b3d7df5c63a2b7288b63b3f41c140bfbbad004324583dc3cc0f639cd','{"q":"c"}','{"q":"c"}','Run wire.
q: c','any','471d1521fa3b15e13cdea670dedf3dde98caa463a611c083dea8198b656e5d69',1,1794988836920,'pending','{"call_id":"provider:c3","tool":"wire","raw_digest":"47c468f0b3d7df5c63a2b7288b63b3f41c140bfbbad004324583dc3cc0f639cd","ledger_key":null,"hold_id":"conf_48b6a3773011f244fd5c5c87"}',0,NULL,'c3',1,NULL,NULL,NULL,NULL);
CREATE TABLE "hold_token" (
                hold_id TEXT NOT NULL REFERENCES hold ON DELETE CASCADE, token_hash TEXT NOT NULL, shown TEXT NOT NULL,
                PRIMARY KEY (hold_id, token_hash));
INSERT INTO "hold_token" VALUES('conf_48b6a3773011f244fd5c5c87','2514fdac2cc9bb8a09933ca7f83cd19adfdba1a2890b40f4e44f9ce029ab812c','b204eb9fb7dc7615ef96de6bb2a66ab0caebbc5343b2353967607580732380ca');
CREATE TABLE ledger (
        key TEXT PRIMARY KEY, tenant TEXT NOT NULL, session_id TEXT NOT NULL REFERENCES session, user TEXT,
        turn INTEGER NOT NULL, ordinal INTEGER NOT NULL, tool TEXT NOT NULL, tool_hash TEXT NOT NULL,
        registry_version TEXT NOT NULL, args_digest TEXT NOT NULL, args TEXT NOT NULL,
        effects TEXT NOT NULL CHECK (effects IN ('none', 'idempotent', 'unsafe')),
        state TEXT NOT NULL CHECK (state IN ('running', 'succeeded', 'failed', 'cancelled', 'unknown')),
        fence INTEGER NOT NULL, owner TEXT NOT NULL, claim_id TEXT NOT NULL, lease_until INTEGER NOT NULL,
        created_at INTEGER NOT NULL, finished_at INTEGER, envelope TEXT, evicted INTEGER NOT NULL DEFAULT 0,
        hold_id TEXT);
INSERT INTO "ledger" VALUES('b975200e8d05a1bcf40695223e21b8c528c96f232082280802a71290925f4df1','','ses_bec372c46ca6fd32d1445ade','ana',1,1,'pay','cdcfd12ff0bbcc4fa1988c796bb4929b1a60d46508a5a74f3dfc5df03f704728','1.0.21bb6034','29a9829b3c03948275ca3be1cb7b633c0207849d2c0bd3215060f2ac05abce64','{"q":"a"}','unsafe','succeeded',1,'owner-23d8501024d06142','owner-23d8501024d06142-1',1794988551857,1794988536857,1794988536871,'{"ok":true,"data":{"paid":"a"},"intents":[],"meta":{"toolId":"pay","toolVersion":"1.0.0","registryVersion":"1.0.21bb6034","duration":19.605,"responseSchemaVersion":"1.0.0","budget":{"retrieval":5}}}',0,NULL);
INSERT INTO "ledger" VALUES('75db801f44f08b19ada365631f4ae314c0575ceeccd69126be5bda15766770ec','','ses_bec372c46ca6fd32d1445ade','ana',1,1,'fail','d3af7ebcf1b9c6e5e1e38e364ce1e6d6d75b3c81737ed6a890e5cbb426eda8fa','1.0.21bb6034','d235bf2e2dc7927c689aecdeee215da93f8d203fe31b1d54f11b87a07845b5f0','{"q":"b"}','unsafe','unknown',1,'owner-23d8501024d06142','owner-23d8501024d06142-2',1794988551906,1794988536906,NULL,'{"ok":false,"error":{"type":"INTERNAL","message":"\"fail\" failed unexpectedly.","retryable":false,"partialSideEffects":true},"intents":[],"meta":{"toolId":"fail","toolVersion":"1.0.0","registryVersion":"1.0.21bb6034","duration":8.107,"responseSchemaVersion":"1.0.0","budget":{"retrieval":5}}}',0,NULL);
INSERT INTO "ledger" VALUES('490e9cbd181d95f0517e1dc2a95ddcd7d3a1ca5efe2cde22e4e34fd649448acf','','ses_72bbb257cd3e4d8a5dc92256',NULL,1,1,'pay','cdcfd12ff0bbcc4fa1988c796bb4929b1a60d46508a5a74f3dfc5df03f704728','1.0.21bb6034','ed8ed69c9ab6537c8f5d81ed3d9c772df1e3995da92f0130d19a85a7f26bc83b','{}','unsafe','succeeded',1,'owner-23d8501024d06142','owner-23d8501024d06142-3',1794988551936,1794988536936,1794988536936,NULL,1,NULL);
CREATE TABLE owner (
                owner TEXT PRIMARY KEY, boot TEXT NOT NULL, namespace TEXT NOT NULL, pid INTEGER NOT NULL,
                started TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rate (
        scope TEXT NOT NULL, window_start INTEGER NOT NULL, used INTEGER NOT NULL,
        PRIMARY KEY (scope, window_start)) WITHOUT ROWID;
CREATE TABLE session (
        session_id TEXT PRIMARY KEY, token_hash TEXT NOT NULL, tenant TEXT NOT NULL, user TEXT, mode TEXT NOT NULL,
        attributes TEXT NOT NULL, registry_version TEXT NOT NULL, connection INTEGER NOT NULL, turn INTEGER NOT NULL,
        active INTEGER NOT NULL, state TEXT NOT NULL, counters TEXT NOT NULL, owner TEXT NOT NULL,
        pruned INTEGER NOT NULL DEFAULT 0, policy TEXT NOT NULL DEFAULT '{}', current_turn INTEGER NOT NULL DEFAULT 0, saved_at INTEGER NOT NULL DEFAULT 0);
INSERT INTO "session" VALUES('ses_bec372c46ca6fd32d1445ade','b973dd19355a7076041f366c13be5474cd502c50d65db6d2a1c5f9188a943972','','ana','text','{"plan":"pro"}','1.0.21bb6034',1,1,1,'{"mode":"text","isActive":true,"pendingEndVoiceSession":null,"shouldSuppressAudio":false,"shouldSuppressTranscript":false,"pendingMessage":null,"isModelGenerating":false,"userAudioChunkCount":0,"interruptionSent":false,"audioChunkCounter":0,"lastAudioFingerprint":null}','{"turn":1,"retrieval":0,"total":3,"refusals":0,"empties":{},"declined":[],"unknown":[["fail","d235bf2e2dc7927c689aecdeee215da93f8d203fe31b1d54f11b87a07845b5f0","75db801f44f08b19ada365631f4ae314c0575ceeccd69126be5bda15766770ec"]],"identical":{"7445b5278e2752c3":1,"01280f769961d85e":1,"50e6b33dedac488c":1}}','owner-23d8501024d06142',0,'{}',1,1794988536939);
INSERT INTO "session" VALUES('ses_72bbb257cd3e4d8a5dc92256','','',NULL,'text','{}','1.0.21bb6034',2,1,0,'{}','{}','owner-23d8501024d06142',1,'{}',1,0);
CREATE TABLE switch (tool TEXT PRIMARY KEY, reason TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "switch" VALUES('other','being mended');
CREATE TABLE turn_input (
        session_id TEXT NOT NULL REFERENCES session, input_id TEXT NOT NULL, turn INTEGER NOT NULL,
        PRIMARY KEY (session_id, input_id)) WITHOUT ROWID;
INSERT INTO "turn_input" VALUES('ses_bec372c46ca6fd32d1445ade','m1',1);
CREATE TABLE turn_left (
                session_id TEXT NOT NULL REFERENCES session, turn INTEGER NOT NULL, counters TEXT NOT NULL,
                PRIMARY KEY (session_id, turn)) WITHOUT ROWID;
CREATE INDEX ledger_finished ON ledger (finished_at) WHERE finished_at IS NOT NULL;
CREATE UNIQUE INDEX hold_open ON hold (session_id, tool, args_digest)
        WHERE state IN ('pending', 'approved');
CREATE INDEX hold_session ON hold (session_id, state);
CREATE INDEX ledger_open ON ledger (session_id, turn, tool, args_digest)
                WHERE state IN ('running', 'unknown');
CREATE INDEX alias_hold ON alias (hold_id) WHERE hold_id IS NOT NULL;
CREATE INDEX audit_chain_name ON audit_chain (chain);
COMMIT;
