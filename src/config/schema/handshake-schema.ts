/** The schema of a route's handshake; what is left out comes from the scheme. */
import * as z from 'zod';
import { HANDSHAKE_NAMES, HANDSHAKES } from '../../auth/handshakes/catalogue.ts';
import type { HandshakeName, SchemeDescription } from '../../auth/schemes/description.ts';
import { tokenSource } from './key-schema.ts';
import { count } from './scalars.ts';

/** DNS names, which do not differ by case (RFC 4343 §3). */
const origin = z
  .string()
  .regex(/^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/, 'an origin is a name such as eventgrid.azure.net')
  .transform((name) => name.toLowerCase());

const written = z.strictObject({
  type: z.enum(HANDSHAKE_NAMES).optional().describe('Whose handshake it is. Left out: that of the scheme, where it has one.'),
  verifyToken: tokenSource
    .optional()
    .describe('What the sender was told to prove itself by: `meta` in hub.verify_token, others in `parameter`.'),
  parameter: z
    .string()
    .regex(/^[A-Za-z0-9_.-]{1,64}$/, 'a parameter is up to 64 letters, digits, dots, dashes and underscores')
    .optional()
    .describe('The query parameter that holds the token. Left out: `token` for microsoft-graph, `access_token` for cloudevents.'),
  allowedOrigins: z.array(origin).default([]).describe('For cloudevents: who may send, such as eventgrid.azure.net.'),
  allowedRate: count.optional().describe('For cloudevents: requests a minute that are welcome. Left out: any.'),
});

/** The section. */
export const handshake = z
  .union([z.literal('off'), z.literal(false).transform(() => 'off' as const), written], {
    error: 'expected off, or a mapping with type, verifyToken, parameter, allowedOrigins, allowedRate',
  })
  .optional()
  .describe(
    "How the sender finds out whether this URL is its receiver's own; the gate answers in the app's place. Left out: as the scheme has it; `off` leaves it to the app.",
  );

/** A handshake, resolved. */
export type ResolvedHandshake = Omit<z.output<typeof written>, 'type'> & { readonly type: HandshakeName };

/** What the route's handshake is; undefined where there is none. */
export function resolveHandshake(
  section: z.output<typeof handshake>,
  { name, handshake: own, isSignedInContent }: SchemeDescription,
): ResolvedHandshake | undefined | { readonly problem: string } {
  if (section !== undefined && isSignedInContent === true) return { problem: `${name} sees to its own; leave handshake out` };
  if (section === 'off') return undefined;
  const type = section?.type ?? own;
  if (type === undefined)
    return section === undefined ? undefined : { problem: `${name} has no handshake of its own; give its type` };
  if (own !== undefined && type !== own) return { problem: `the handshake of ${name} is ${own}, not ${type}` };
  const { parameter } = HANDSHAKES[type];
  return { allowedOrigins: [], ...(parameter === undefined ? undefined : { parameter }), ...section, type };
}
