/** The schema of a route's handshake. Defaults come from the scheme. */
import * as z from 'zod';
import { HANDSHAKE_NAMES, HANDSHAKES } from '../../verify/handshakes/catalogue.ts';
import type { HandshakeName, SchemeDescription } from '../../verify/schemes/description.ts';
import { textSource } from './key-schema.ts';
import { count } from './scalars.ts';

/** DNS names, which are case-insensitive (RFC 4343 §3). */
const origin = z
  .string()
  .regex(/^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/, 'an origin must be a host name such as eventgrid.azure.net')
  .transform((name) => name.toLowerCase());

const written = z.strictObject({
  type: z.enum(HANDSHAKE_NAMES).optional().describe('Type of handshake. Default: the handshake of the scheme, if it has one.'),
  verifyToken: textSource
    .optional()
    .describe(
      'Token that the sender must present in its handshake: `meta` and `strava` in hub.verify_token, `oura` in verification_token, other types in the query parameter `parameter`. Configure the same token at the sender.',
    ),
  parameter: z
    .string()
    .regex(/^[A-Za-z0-9_.-]{1,64}$/, 'a parameter name is 1 to 64 letters, digits, dots, dashes and underscores')
    .optional()
    .describe('Query parameter that contains the token. Default: `access_token` for cloudevents, otherwise `token`.'),
  allowedOrigins: z
    .array(origin)
    .default([])
    .describe('For cloudevents: origins that are allowed to send events, such as eventgrid.azure.net.'),
  allowedRate: count
    .optional()
    .describe('For cloudevents: number of requests per minute that the sender may make. Default: no limit.'),
  publicKey: z
    .string()
    .regex(/^[A-Za-z0-9_]{1,64}$/, 'a public key of Braintree is 1 to 64 letters, digits and underscores')
    .optional()
    .describe('For braintree: the public key that belongs to the private key of the route; it is part of the response.'),
});

/** The `handshake` section. */
export const handshake = z
  .union([z.literal('off'), z.literal(false).transform(() => 'off' as const), written], {
    error: 'expected off, or an object with type, verifyToken, parameter, allowedOrigins, allowedRate, publicKey',
  })
  .optional()
  .describe(
    'How the sender verifies that this URL belongs to its receiver; sidegate responds instead of the app. Default: the handshake of the scheme; `off` leaves it to the app.',
  );

/** A handshake with its type resolved. */
type ResolvedHandshake = Omit<z.output<typeof written>, 'type'> & { readonly type: HandshakeName };

/** Combines the section with the scheme's handshake; undefined if the route has none. */
export function resolveHandshake(
  section: z.output<typeof handshake>,
  { name, handshake: own, isSignedInContent }: SchemeDescription,
): ResolvedHandshake | undefined | { readonly problem: string } {
  if (section !== undefined && isSignedInContent === true)
    return { problem: `${name} has a built-in handshake; remove handshake` };
  if (section === 'off') return undefined;
  const type = section?.type ?? own;
  if (type === undefined)
    return section === undefined ? undefined : { problem: `${name} has no handshake by default; set handshake.type` };
  if (own !== undefined && type !== own) return { problem: `the handshake of ${name} is ${own}, not ${type}` };
  const { parameter } = HANDSHAKES[type];
  return { allowedOrigins: [], ...(parameter === undefined ? undefined : { parameter }), ...section, type };
}
