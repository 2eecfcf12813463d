BEGIN TRANSACTION;
CREATE TABLE "alias" (
                session_id TEXT NOT NULL REFERENCES session, call_id TEXT NOT NULL, tool TEXT NOT NULL,
                raw_digest TEXT NOT NULL, ledger_key TEXT, hold_id TEXT REFERENCES hold ON DELETE CASCADE,
                PRIMARY KEY (session_id, call_id)) WITHOUT ROWID;
INSERT INTO "alias" VALUES('ses_548e320fd104968350084cea','provider:c1','pay','ed8ed69c9ab6537c8f5d81ed3d9c772df1e3995da92f0130d19a85a7f26bc83b','4d61bcf2fef638df5920f4b190fc916ec908509b58dce0eaa314c5e0e1bf598a',NULL);
INSERT INTO "alias" VALUES('ses_a4d75c6124aa27df76a913d9','provider:c1','pay','29a9829b3c03948275ca3be1cb7b633c0207849d2c0bd3215060f2ac05abce64','6661529393fe9d5cdba0527dd1fb637b38edf7be528320b28d7305a80e86d2d4',NULL);
INSERT INTO "alias" VALUES('ses_a4d75c6124aa27df76a913d9','provider:c2','fail','d235bf2e2dc7927c689aecdeee215da93f8d203fe31b1d54f11b87a07845b5f0','033f69eec093222425e73d7a4c8aa1f3dc05c8e289a4c90184e77201a76f7be4',NULL);
INSERT INTO "alias" VALUES('ses_a4d75c6124aa27df76a913d9','provider:c3','wire','47c468f0b3d7df5c63a2b7288b63b3f41c140bfbbad004324583dc3cc0f639cd',NULL,'conf_c693eb44381e5a94606d809e');
CREATE TABLE block (
        tenant TEXT NOT NULL, user TEXT NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (tenant, user)) WITHOUT ROWID;
INSERT INTO "block" VALUES('','cyd',1125899906842624);
CREATE TABLE handrail_migration (
                version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL);
INSERT INTO "handrail_migration" VALUES(1,'sessions, ledger, confirmations, operating',1794988535100);
INSERT INTO "handrail_migration" VALUES(2,'policies of sessions',1794988535100);
INSERT INTO "handrail_migration" VALUES(3,'fewer pages for a claim',1794988535100);
INSERT INTO "handrail_migration" VALUES(4,'one small index of open calls',1794988535100);
INSERT INTO "handrail_migration" VALUES(5,'call ids without an index of keys',1794988535100);
INSERT INTO "handrail_migration" VALUES(6,'turns that were left',1794988535100);
INSERT INTO "handrail_migration" VALUES(7,'when a session was saved',1794988535100);
CREATE TABLE hold (
        hold_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, session_id TEXT NOT NULL REFERENCES session, user TEXT,
        turn INTEGER NOT NULL, tool TEXT NOT NULL, tool_hash TEXT NOT NULL, args_digest TEXT NOT NULL,
        args TEXT NOT NULL, raw_args TEXT NOT NULL, preview TEXT NOT NULL,
        channel TEXT NOT NULL, ledger_key TEXT NOT NULL,
        ordinal INTEGER NOT NULL, expires_at INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'consumed', 'declined', 'expired', 'superseded')),
        alias TEXT, repaired INTEGER NOT NULL, consumed_by TEXT);
INSERT INTO "hold" VALUES('conf_c693eb44381e5a94606d809e','','ses_a4d75c6124aa27df76a913d9','ana',1,'wire','5e7a29011af3d94111d6f6e60d6d972d0a37a3e129154aa340c65209872b1db2','47c468f0b3d7df5c63a2b7288b63b3f41c140bfbbad004324583dc3cc0f639cd','{"q":"c"}','{"q":"c"}','Run wire.
q: c','any','6e911c7f869a69f14f7e7343d6f9f9dc45658e2fcfcb6c3f929d900c677bb164',1,1794988835251,'pending','{"call_id":"provider:c3","tool":"wire","raw_digest":"47c468f0b3d7df5c63a2b7288b63b3f41c140bfbbad004324583dc3cc0f639cd","ledger_key":null,"hold_id":"conf_c693eb44381e5a94606d809e"}',0,NULL);
CREATE TABLE hold_token (
        hold_id TEXT NOT NULL REFERENCES hold ON DELETE CASCADE, token_hash TEXT NOT NULL,
        PRIMARY KEY (hold_id, token_hash)) WITHOUT ROWID;
INSERT INTO "hold_token" VALUES('conf_c693eb44381e5a94606d809e','3811a828feaa7d319ae00b1f3f182cef5bda481129be54199af8feafe3c5be8f');
CREATE TABLE ledger (
        key TEXT PRIMARY KEY, tenant TEXT NOT NULL, session_id TEXT NOT NULL REFERENCES session, user TEXT,
        turn INTEGER NOT NULL, ordinal INTEGER NOT NULL, tool TEXT NOT NULL, tool_hash TEXT NOT NULL,
        registry_version TEXT NOT NULL, args_digest TEXT NOT NULL, args TEXT NOT NULL,
        effects TEXT NOT NULL CHECK (effects IN ('none', 'idempotent', 'unsafe')),
        state TEXT NOT NULL CHECK (state IN ('running', 'succeeded', 'failed', 'cancelled', 'unknown')),
        fence INTEGER NOT NULL, owner TEXT NOT NULL, claim_id TEXT NOT NULL, lease_until INTEGER NOT NULL,
        created_at INTEGER NOT NULL, finished_at INTEGER, envelope TEXT, evicted INTEGER NOT NULL DEFAULT 0,
        hold_id TEXT);
INSERT INTO "ledger" VALUES('6661529393fe9d5cdba0527dd1fb637b38edf7be528320b28d7305a80e86d2d4','','ses_a4d75c6124aa27df76a913d9','ana',1,1,'pay','addf6eba251408174cefb513eb7faa9a9f898d9769d9b91c73a4b3b1f2f226e9','1.0.38c0f88a','29a9829b3c03948275ca3be1cb7b633c0207849d2c0bd3215060f2ac05abce64','{"q":"a"}','unsafe','succeeded',1,'owner-8167f6d11fc18d45','owner-8167f6d11fc18d45-1',1794988550194,1794988535194,1794988535201,'{"ok":true,"data":{"paid":"a"},"intents":[],"meta":{"toolId":"pay","toolVersion":"1.0.0","registryVersion":"1.0.38c0f88a","duration":6.95,"responseSchemaVersion":"1.0.0","budget":{"retrieval":5}}}',0,NULL);
INSERT INTO "ledger" VALUES('033f69eec093222425e73d7a4c8aa1f3dc05c8e289a4c90184e77201a76f7be4','','ses_a4d75c6124aa27df76a913d9','ana',1,1,'fail','ca0beaca02d5de1cb9aec6e87a7fd9d751a3781960c9a0e0135d5595a6dc2962','1.0.38c0f88a','d235bf2e2dc7927c689aecdeee215da93f8d203fe31b1d54f11b87a07845b5f0','{"q":"b"}','unsafe','unknown',1,'owner-8167f6d11fc18d45','owner-8167f6d11fc18d45-2',1794988550230,1794988535230,NULL,'{"ok":false,"error":{"type":"INTERNAL","message":"\"fail\" failed unexpectedly.","retryable":false,"partialSideEffects":true},"intents":[],"meta":{"toolId":"fail","toolVersion":"1.0.0","registryVersion":"1.0.38c0f88a","duration":13.678,"responseSchemaVersion":"1.0.0","budget":{"retrieval":5}}}',0,NULL);
INSERT INTO "ledger" VALUES('4d61bcf2fef638df5920f4b190fc916ec908509b58dce0eaa314c5e0e1bf598a','','ses_548e320fd104968350084cea',NULL,1,1,'pay','addf6eba251408174cefb513eb7faa9a9f898d9769d9b91c73a4b3b1f2f226e9','1.0.38c0f88a','ed8ed69c9ab6537c8f5d81ed3d9c772df1e3995da92f0130d19a85a7f26bc83b','{}','unsafe','succeeded',1,'owner-8167f6d11fc18d45','owner-8167f6d11fc18d45-3',1794988550272,1794988535272,1794988535277,NULL,1,NULL);
CREATE TABLE rate (
        scope TEXT NOT NULL, window_start INTEGER NOT NULL, used INTEGER NOT NULL,
        PRIMARY KEY (scope, window_start)) WITHOUT ROWID;
CREATE TABLE session (
        session_id TEXT PRIMARY KEY, token_hash TEXT NOT NULL, tenant TEXT NOT NULL, user TEXT, mode TEXT NOT NULL,
        attributes TEXT NOT NULL, registry_version TEXT NOT NULL, connection INTEGER NOT NULL, turn INTEGER NOT NULL,
        active INTEGER NOT NULL, state TEXT NOT NULL, counters TEXT NOT NULL, owner TEXT NOT NULL,
        pruned INTEGER NOT NULL DEFAULT 0, policy TEXT NOT NULL DEFAULT '{}', current_turn INTEGER NOT NULL DEFAULT 0, saved_at INTEGER NOT NULL DEFAULT 0);
INSERT INTO "session" VALUES('ses_a4d75c6124aa27df76a913d9','f361d8deb0d9fbc72897680320cb8d297d03cc8b93236fd215cfccb4efad13a5','','ana','text','{"plan":"pro"}','1.0.38c0f88a',1,1,1,'{"mode":"text","isActive":true,"pendingEndVoiceSession":null,"shouldSuppressAudio":false,"shouldSuppressTranscript":false,"pendingMessage":null,"isModelGenerating":false,"userAudioChunkCount":0,"interruptionSent":false,"audioChunkCounter":0,"lastAudioFingerprint":null}','{"turn":1,"retrieval":0,"total":3,"refusals":0,"empties":{},"declined":[],"unknown":[["fail","d235bf2e2dc7927c689aecdeee215da93f8d203fe31b1d54f11b87a07845b5f0","033f69eec093222425e73d7a4c8aa1f3dc05c8e289a4c90184e77201a76f7be4"]],"identical":{"7445b5278e2752c3":1,"01280f769961d85e":1,"50e6b33dedac488c":1}}','owner-8167f6d11fc18d45',0,'{}',1,1794988535321);
INSERT INTO "session" VALUES('ses_548e320fd104968350084cea','','',NULL,'text','{}','1.0.38c0f88a',1,1,0,'{"mode":"text","isActive":true,"pendingEndVoiceSession":null,"shouldSuppressAudio":false,"shouldSuppressTranscript":false,"pendingMessage":null,"isModelGenerating":false,"userAudioChunkCount":0,"interruptionSent":false,"audioChunkCounter":0,"lastAudioFingerprint":null}','{"turn":1,"retrieval":0,"total":1,"refusals":0,"empties":{},"declined":[],"unknown":[],"identical":{"0ac13ee18c8b7683":1}}','owner-8167f6d11fc18d45',1,'{}',1,1794988535321);
CREATE TABLE switch (tool TEXT PRIMARY KEY, reason TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "switch" VALUES('other','being mended');
CREATE TABLE turn_input (
        session_id TEXT NOT NULL REFERENCES session, input_id TEXT NOT NULL, turn INTEGER NOT NULL,
        PRIMARY KEY (session_id, input_id)) WITHOUT ROWID;
INSERT INTO "turn_input" VALUES('ses_a4d75c6124aa27df76a913d9','m1',1);
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
COMMIT;
