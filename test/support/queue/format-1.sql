PRAGMA application_id = 1397179473;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE attempt (
    event INTEGER NOT NULL, endpoint INTEGER NOT NULL, n INTEGER NOT NULL, record TEXT NOT NULL, PRIMARY KEY (event, endpoint, n)
  ) STRICT, WITHOUT ROWID;
INSERT INTO "attempt" VALUES(2,1,1,'{"at":1795000000000,"duration":5,"status":503,"outcome":"server_error"}');
INSERT INTO "attempt" VALUES(2,1,2,'{"at":1795000001000,"duration":5,"status":503,"outcome":"server_error"}');
INSERT INTO "attempt" VALUES(3,1,1,'{"at":1795000000000,"duration":5,"status":503,"outcome":"server_error"}');
INSERT INTO "attempt" VALUES(3,1,2,'{"at":1795000001000,"duration":5,"status":503,"outcome":"server_error"}');
CREATE TABLE counters (
    one INTEGER PRIMARY KEY CHECK (one = 1), next_seq INTEGER NOT NULL, events INTEGER NOT NULL, bytes INTEGER NOT NULL
  ) STRICT;
INSERT INTO "counters" VALUES(1,10,9,6488);
CREATE TABLE delivery (
    event INTEGER NOT NULL, endpoint INTEGER NOT NULL, state INTEGER NOT NULL, due INTEGER NOT NULL, attempt INTEGER NOT NULL,
    tries INTEGER NOT NULL, replay INTEGER NOT NULL, settled INTEGER, order_key TEXT, last TEXT, PRIMARY KEY (event, endpoint)
  ) STRICT, WITHOUT ROWID;
INSERT INTO "delivery" VALUES(1,1,0,1795000005000,1,0,1,NULL,NULL,'{"at":1795000000000,"duration":5,"status":204,"outcome":"delivered"}');
INSERT INTO "delivery" VALUES(2,1,0,1795003600000,3,3,0,NULL,NULL,'{"at":1795000002000,"duration":5,"status":503,"outcome":"server_error"}');
INSERT INTO "delivery" VALUES(3,1,3,0,3,3,0,1795000002000,NULL,'{"at":1795000002000,"duration":5,"status":503,"outcome":"server_error"}');
INSERT INTO "delivery" VALUES(4,1,0,1795000000000,0,0,0,NULL,NULL,NULL);
INSERT INTO "delivery" VALUES(4,2,0,1795000000000,0,0,0,NULL,NULL,NULL);
INSERT INTO "delivery" VALUES(6,2,4,0,0,0,0,1795000000000,NULL,NULL);
INSERT INTO "delivery" VALUES(7,3,0,1795000000000,0,0,0,NULL,'k',NULL);
INSERT INTO "delivery" VALUES(8,3,1,1795000000000,0,0,0,NULL,'k',NULL);
INSERT INTO "delivery" VALUES(9,3,1,1795000000000,0,0,0,NULL,'k',NULL);
CREATE TABLE endpoint (id TEXT PRIMARY KEY, version INTEGER NOT NULL, json TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO "endpoint" VALUES('acme',2,'{"url":"https://acme.example/2"}');
CREATE TABLE event (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, tenant TEXT, created INTEGER NOT NULL,
    bytes INTEGER NOT NULL, metadata TEXT NOT NULL, body BLOB
  ) STRICT;
INSERT INTO "event" VALUES(1,'delivered','invoice.paid',NULL,1795000000000,724,'{}',X'7B226964223A2264656C697665726564227D');
INSERT INTO "event" VALUES(2,'retried','invoice.paid',NULL,1795000000000,722,'{}',X'7B226964223A2272657472696564227D');
INSERT INTO "event" VALUES(3,'dead','invoice.paid',NULL,1795000000000,719,'{}',X'7B226964223A2264656164227D');
INSERT INTO "event" VALUES(4,'both','user.created','t',1795000000000,911,'{}',X'7B226964223A22626F7468227D');
INSERT INTO "event" VALUES(5,'nobody','invoice.paid',NULL,1795000000000,529,'{}',X'7B226964223A226E6F626F6479227D');
INSERT INTO "event" VALUES(6,'skipped','invoice.paid',NULL,1795000000000,722,'{}',X'7B226964223A22736B6970706564227D');
INSERT INTO "event" VALUES(7,'first','invoice.paid',NULL,1795000000000,720,'{}',X'7B226964223A226669727374227D');
INSERT INTO "event" VALUES(8,'second','invoice.paid',NULL,1795000000000,721,'{}',X'7B226964223A227365636F6E64227D');
INSERT INTO "event" VALUES(9,'third','invoice.paid',NULL,1795000000000,720,'{}',X'7B226964223A227468697264227D');
CREATE TABLE lane (num INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, state TEXT) STRICT;
INSERT INTO "lane" VALUES(1,'acme','{"failures":1,"firstFailureAt":1795000000000,"isProven":true,"since":1795000000000}');
INSERT INTO "lane" VALUES(2,'other',NULL);
INSERT INTO "lane" VALUES(3,'ordered',NULL);
CREATE INDEX event_created ON event (created, seq);
CREATE INDEX delivery_due ON delivery (endpoint, state, due, event) WHERE state < 2;
CREATE INDEX delivery_order ON delivery (endpoint, order_key, event) WHERE state < 2 AND order_key IS NOT NULL;
CREATE INDEX delivery_endpoint ON delivery (endpoint, event);
CREATE INDEX delivery_failed ON delivery (event, endpoint) WHERE state > 2;
CREATE INDEX delivery_failed_endpoint ON delivery (endpoint, event) WHERE state > 2;
COMMIT;
