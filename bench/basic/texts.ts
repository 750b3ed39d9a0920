/** The descriptions of the participants in the report. */

/** Lines of Markdown. */
export const DESCRIPTION: readonly string[] = [
  '## Setup',
  '',
  '- **nginx**: one worker, `auth_basic` with a bcrypt file of the same hashes, keep-alive connections to the app, a buffered access log.',
  '  It calls crypt(3) for every request. For the transfers its password is `{PLAIN}`, so that only the bytes cost. "Buffering on" is its',
  '  default (`proxy_buffering`, `proxy_request_buffering`); "off" disables both, with the default buffer sizes.',
  '- **Caddy**: `basic_auth` with the hash cache that a Caddyfile always has, `reverse_proxy`, and an access log in a file, or none.',
  '- **sidegate**: the bundle with its default settings and `requireTls: false`. For the storm and the times of rejections it has one trusted',
  '  proxy, so that attackers and legitimate clients have different addresses. There is one core, so one password thread. It writes its normal',
  '  log, one line per request.',
  '- **known users**: 16 with bcrypt cost 10, in turns; the app never gets a password.',
  '- **transfers**: curl, three in sequence on one connection. The app is an nginx that sends a file, or reads the whole body and then responds.',
  '- **storm**: wrk with 8 connections and a new wrong password each time, each sent after the response to the last one. At the same time',
  '  there are 200 requests per second of a user whose password is known (if there is a cache) and 200 without a password. Each is timed',
  '  from the moment at which it was due. On the core that all senders share, the attackers run at low priority, so that they do not delay',
  '  the measurement.',
  '- **times of rejections**: one connection, one guess after the other, known and unknown users in random order, each password new. Each user',
  '  has another algorithm: bcrypt 10, bcrypt 11, argon2id (19 MiB, two passes), sha512-crypt, apr1. nginx lacks argon2id here, and Caddy has',
  '  one algorithm per route. The interval is computed by bootstrap over all rounds.',
];
