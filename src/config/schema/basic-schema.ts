/** The schema of a route's HTTP Basic section. */
import * as z from 'zod';
import { count, duration, filePath, instant, NAME } from './scalars.ts';

/** Fields of every user source. */
const SOURCE_FIELDS = {
  name: z
    .string()
    .regex(NAME, 'a name is 1 to 64 letters, digits, dots, dashes and underscores')
    .optional()
    .describe('Name of the source in logs and metrics. Default: its position in the list.'),
  notAfter: instant().optional().describe('All passwords of this source are rejected from this instant on. Default: no expiry.'),
};

const userSource = z
  .union(
    [
      z.strictObject({
        file: filePath.describe('htpasswd file with one user:hash per line.'),
        ...SOURCE_FIELDS,
      }),
      z.strictObject({
        secretDir: filePath.describe(
          'Directory of a mounted Secret of type kubernetes.io/basic-auth, with the files username and password.',
        ),
        ...SOURCE_FIELDS,
      }),
      z.strictObject({
        mapDir: filePath.describe(
          'Directory of a mounted Secret in the auth-map format of ingress-nginx: one file per user, which contains the hash. Names that start with a dot, and what is not a file, are skipped.',
        ),
        ...SOURCE_FIELDS,
      }),
    ],
    { error: 'expected { file: PATH }, { secretDir: DIR } or { mapDir: DIR }' },
  )
  .describe('A source of users; watched for changes.');

/** The users who may log in by password, and the limits against guessing. */
export const basic = z.strictObject({
  realm: z
    .string()
    .regex(/^[\x20-\x7e]{1,128}$/, 'a realm is 1 to 128 printable ASCII characters')
    .describe('Protection space, shown by browsers. Routes with the same realm share its users.'),
  users: z
    .union([z.array(userSource).min(1), userSource.transform((source) => [source])], {
      error: 'expected { file: PATH }, { secretDir: DIR } or { mapDir: DIR }, or a list of them',
    })
    .optional()
    .describe('Sources of the users who may log in. Required on one route of each realm.'),
  requireTls: z
    .boolean()
    .default(true)
    .describe('Rejects requests over plain HTTP with 403, before the password is read. Set to false only on a trusted network.'),
  forwardUser: z
    .boolean()
    .default(true)
    .describe(
      'Sends the user name to the app in Sidegate-User and X-Forwarded-User; characters outside visible ASCII are percent-encoded.',
    ),
  forwardAuthorization: z.boolean().default(false).describe('Forwards the Authorization header, with the password, to the app.'),
  latin1: z
    .boolean()
    .default(false)
    .describe('Decodes credentials that are not valid UTF-8 as Latin-1; needed for some old clients.'),
  allowPlainTextPasswords: z.boolean().default(false).describe('Accepts plain-text passwords in user sources. Insecure.'),
  limit: z
    .union([
      z.literal('off'),
      z.literal(false).transform(() => 'off' as const),
      z
        .strictObject({
          failures: count.default(10).describe('Number of failed attempts within `per` that leads to a ban.'),
          per: duration().prefault('1m').describe('Time window in which failed attempts are counted.'),
          by: z
            .array(z.enum(['client', 'user']))
            .min(1)
            .default(['client', 'user'])
            .describe(
              'Counts failed attempts by client network (`client`), user name (`user`) or both. The client is checked first.',
            ),
          ban: duration()
            .prefault('5m')
            .describe(
              'How long further attempts are rejected with 429, even with the right password: after 100 ms, or after at most 5 s while the same process still checks passwords of the client or user. Exception: a password that the same client network (an IPv4 address, or the /64 of an IPv6 address) used successfully at the same process (replica and worker) within the last hour. It ends when that network has sent 100 wrong ones for that user while banned.',
            ),
        })
        .prefault({}),
    ])
    .prefault({})
    .describe(
      'Limits failed login attempts; `off` disables the limit, for example if another component enforces one. `check` warns of a limit that allows more than 100,000 attempts a day.',
    ),
  cache: z
    .strictObject({
      ttl: duration()
        .prefault('5m')
        .describe(
          'How long a successful password check is cached for the same client network; 0s disables the cache, so every request is hashed.',
        ),
      maxEntries: z
        .int()
        .min(0)
        .max(1_000_000)
        .default(10_000)
        .describe('Maximum number of cached checks: one per user and client network.'),
    })
    .prefault({}),
});

/** The same for a port with one realm that forwards no user to an app. */
export const portBasic = basic
  .omit({ requireTls: true, forwardUser: true, forwardAuthorization: true })
  .meta({ examples: [{ users: [{ file: '/etc/sidegate/users' }] }] });
