/** The schema of event ordering. */
import * as z from 'zod';
import { duration, jsonPath } from './scalars.ts';

/** How a route prevents that an older event reaches the app after a newer one. */
export const order = z.strictObject({
  key: jsonPath().describe('JSON path of the resource that the event belongs to; its value must be a string or a number.'),
  version: jsonPath().describe(
    "JSON path of the resource's version: a number, a string of up to 4,096 digits, or a time (RFC 3339). Events without key or version are forwarded without ordering.",
  ),
  onStale: z
    .enum(['acknowledge', 'forward'])
    .default('acknowledge')
    .describe(
      'Policy for an event that is older than the newest handled one: `acknowledge` responds with 200 without forwarding it; `forward` forwards it with `Sidegate-Stale: true`.',
    ),
  retention: duration()
    .prefault('3d')
    .describe(
      'How long the newest version of a resource is remembered. Set it at least as long as the sender retries older events.',
    ),
  lease: duration()
    .prefault('60s')
    .describe(
      'How long a resource stays reserved for one event if no response of the app settles it; must be longer than timeout + connectTimeout, and should also cover limits.queueTimeout + timeout, for the waits before that.',
    ),
  maxWait: duration()
    .prefault('4s')
    .describe('Maximum time that an event waits while the app handles another one of the same resource; then it gets 503.'),
  onStoreError: z
    .enum(['refuse', 'forward'])
    .default('refuse')
    .describe('Policy while the store is down: `refuse` rejects events with 503; `forward` forwards them in order of arrival.'),
});
