/** The schemas of failed logins. */
import * as z from 'zod';

const MAX_TEXT = 256;

const failedLogins = z.strictObject({
  realm: z.string(),
  client: z.string().describe('Address.'),
  failures: z.int().describe('Recent requests with wrong credentials or during a ban.'),
  lastAt: z.iso.datetime(),
  routes: z.array(z.string()),
  bannedForMs: z
    .number()
    .nullable()
    .describe('Remaining time of the ban of its network (an IPv4 address or an IPv6 /64); null: not banned.'),
});

export const failedLoginList = z.strictObject({ data: z.array(failedLogins) });
export type FailedLogins = z.output<typeof failedLogins>;

const realm = z.string().min(1).max(MAX_TEXT);

export const release = z
  .union([
    z.strictObject({ realm, client: z.union([z.ipv4(), z.ipv6()]).describe('Its whole network is released.') }),
    z.strictObject({ realm, user: z.string().min(1).max(MAX_TEXT) }),
  ])
  .describe('A client or a user whose failed logins are forgotten.');
export type Release = z.output<typeof release>;

export const released = z.strictObject({
  hadFailures: z.boolean().describe('false: it was not banned, and had no failed logins.'),
});
