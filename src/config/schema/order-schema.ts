/** The schema of the order of events: which may not overtake which. */
import * as z from 'zod';
import { duration, jsonPath } from './scalars.ts';

/** How a route keeps older events from coming after newer ones. */
export const order = z.strictObject({
  key: jsonPath().describe('Where the content names its resource, as a path into the JSON: a text or a number.'),
  version: jsonPath().describe(
    'Where it says how new it is: a number or a text of digits, up to 4,096 of them, or a time (RFC 3339). Events without key or version pass unordered.',
  ),
  onStale: z
    .enum(['answer', 'forward'])
    .default('answer')
    .describe(
      'What an event gets that is older than the newest one handled: 200 without the app, or the app with `Sidegate-Stale: true`.',
    ),
  retention: duration()
    .prefault('3d')
    .describe('How long the newest version of a resource is remembered: as long as an older event may still be retried.'),
  lease: duration()
    .prefault('60s')
    .describe('How long a resource is kept for one event if the gate dies; must be above timeout + connectTimeout.'),
  waitAtMost: duration()
    .prefault('4s')
    .describe('How long an event waits while another one of its resource is with the app; then it is 503.'),
  onStoreError: z
    .enum(['refuse', 'forward'])
    .default('refuse')
    .describe('What happens while the store is down: 503, or let events through in whatever order they come.'),
});
