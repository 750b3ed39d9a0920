/** The schema of a route's HTTP Basic section. */
import * as z from 'zod';
import { count, duration, filePath, instant, NAME } from './scalars.ts';

/** What every source of users may say. */
const SOURCE_FIELDS = {
  name: z
    .string()
    .regex(NAME, 'a name is 1 to 64 letters, digits, dots, dashes and underscores')
    .optional()
    .describe('Shown in logs and metrics; left out: the place in the list.'),
  notAfter: instant().optional().describe('None of its passwords are taken from this instant on.'),
};

const userSource = z
  .union(
    [
      z.strictObject({
        file: filePath.describe('htpasswd file: user:hash a line.'),
        ...SOURCE_FIELDS,
      }),
      z.strictObject({
        secretDir: filePath.describe('Mounted Secret of type kubernetes.io/basic-auth: the files username and password.'),
        ...SOURCE_FIELDS,
      }),
      z.strictObject({
        mapDir: filePath.describe(
          'Mounted Secret in the auth-map form of ingress-nginx: a file for each user, holding the hash.',
        ),
        ...SOURCE_FIELDS,
      }),
    ],
    { error: 'expected { file: PATH }, { secretDir: DIR } or { mapDir: DIR }' },
  )
  .describe('Where users come from; watched for changes.');

/** Who may come in by a password, and how guesses are bounded. */
export const basic = z.strictObject({
  realm: z
    .string()
    .regex(/^[\x20-\x7e]{1,128}$/, 'a realm is 1 to 128 printable ASCII characters')
    .describe('The protection space, shown by browsers. Routes with the same realm share its users.'),
  users: z
    .union([z.array(userSource).min(1), userSource.transform((source) => [source])], {
      error: 'expected { file: PATH }, { secretDir: DIR } or { mapDir: DIR }, or a list of them',
    })
    .optional()
    .describe('Who may come in. Left out where another route of the same realm names them.'),
  requireTls: z.boolean().default(true).describe('Refuse plain HTTP before a password is read (403).'),
  forwardUser: z
    .boolean()
    .default(true)
    .describe(
      'Tell the app who it is, by Sidegate-User and X-Forwarded-User; percent-encoded where it is not plain visible ASCII.',
    ),
  forwardAuthorization: z.boolean().default(false).describe('Hand the password on to the app.'),
  latin1: z.boolean().default(false).describe('Read credentials that are not UTF-8 as Latin-1, for old clients.'),
  allowPlainTextPasswords: z.boolean().default(false).describe('Take users files that hold passwords as they are.'),
  limit: z
    .union([
      z.literal('off'),
      z.literal(false).transform(() => 'off' as const),
      z
        .strictObject({
          failures: count.default(10).describe('Attempts that may fail within `per`.'),
          per: duration().prefault('1m').describe('The window they are counted in.'),
          by: z
            .array(z.enum(['client', 'user']))
            .min(1)
            .default(['client', 'user'])
            .describe(
              'Whose attempts are counted: those of one client network, those at one user name. The client is checked first.',
            ),
          ban: duration()
            .prefault('5m')
            .describe(
              'How long further attempts are rejected with 429, after a delay of 100 ms, even with the right password. Exception: a password that the same client network (an IPv4 address, or the /64 of an IPv6 address) used successfully within the last hour, unless that network has sent 100 wrong ones for that user while banned.',
            ),
        })
        .prefault({}),
    ])
    .prefault({})
    .describe('Makes guessing slow; `off` leaves it to others.'),
  cache: z
    .strictObject({
      ttl: duration()
        .prefault('5m')
        .describe('How long a password that fitted is not hashed again for the same client network; 0s: hash each time.'),
      maxEntries: z
        .int()
        .min(0)
        .max(1_000_000)
        .default(10_000)
        .describe('Most users remembered, counted once for each of their client networks.'),
    })
    .prefault({}),
});
