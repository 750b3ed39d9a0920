/** What the report says of those who take part. */

/** Lines of Markdown. */
export const DESCRIPTION: readonly string[] = [
  '## Who does what',
  '',
  '- **nginx**: one worker, `auth_basic` with a bcrypt file of the same hashes, kept-alive connections to the app, a buffered access log.',
  '  It asks crypt(3) at every request. For the transfers its password is `{PLAIN}`, so that only bytes cost; buffering on is its default',
  '  (`proxy_buffering`, `proxy_request_buffering`), off is both switched off, with the default sizes of buffers.',
  '- **Caddy**: `basic_auth` with the hash cache that a Caddyfile always has, `reverse_proxy`, and an access log in a file, or none.',
  '- **sidegate**: the bundle with its default settings, `requireTls: false` and, for the storm and the times of refusals, one trusted proxy:',
  '  guessers and honest clients have addresses of their own. One core, so one password thread. It writes its log as always, a line a request.',
  '- **known users**: 16 with bcrypt cost 10, in turns; the app never gets a password.',
  '- **transfers**: curl, three in a row on one connection; the app is an nginx that sends a file, or reads all of the content and then answers.',
  '- **storm**: wrk with 8 connections and a new wrong password each time, as fast as answers come; meanwhile 200 requests a second of a',
  '  user whose password is known (where there is a cache) and 200 without a password, each timed from the moment it was due. On the',
  '  core that all of the load shares, guessers run at a low priority, so that the measuring is not held up by them.',
  '- **times of refusals**: one connection, one guess after the other, known and unknown users mixed at random, each password new. Each user',
  '  has another algorithm: bcrypt 10, bcrypt 11, argon2id (19 MiB, two passes), sha512-crypt, apr1; nginx lacks argon2id here, Caddy has one',
  '  algorithm a route. The interval is by bootstrap over all rounds.',
];
