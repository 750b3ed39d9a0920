/** The schema of stored bodies. */
import * as z from 'zod';
import { type JsonPattern, parseJsonPattern } from '../../core/json-path.ts';
import { duration, scalar, size } from './scalars.ts';

const MAX_PATHS = 32;

/** Which bodies of a route the journal stores, and without which values. */
export const storeBody = z.strictObject({
  maxBytes: size()
    .prefault('8Ki')
    .describe(
      'Maximum size of a stored body, at most 64Ki. Of a larger one the beginning is stored if nothing has to be redacted, otherwise nothing.',
    ),
  retention: duration().prefault('1h').describe('How long a body is stored, at most 1d; less if `journal` has no room for it.'),
  redact: z
    .array(scalar<JsonPattern>(parseJsonPattern, '$.customers[*].email'), {
      error: 'expected the list of JSON paths whose values must not be stored; [] stores bodies as they are',
    })
    .max(MAX_PATHS, `expected at most ${MAX_PATHS} paths`)
    .meta({ examples: [['$.card.number', '$.customers[*].email']] })
    .describe(
      'JSON paths of values that are replaced by "[redacted]"; [*] stands for every member or element. If the list is not empty, only JSON is stored. Credentials that the scheme puts into the body are always replaced. Required: write [] if nothing must be redacted.',
    ),
});
