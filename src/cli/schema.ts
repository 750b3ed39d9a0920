/** `sidegate schema`: the JSON Schema of the config, or of fixture files. */

import { toJsonSchema } from '../config/schema/json-schema.ts';
import { toFixturesJsonSchema } from '../diagnostics/simulate/fixtures.ts';
import { EXIT, type Io } from './io.ts';

/** Prints the schema. */
export function printSchema({ fixtures }: { readonly fixtures?: boolean }, io: Io): number {
  io.stdout(`${JSON.stringify(fixtures === true ? toFixturesJsonSchema() : toJsonSchema(), undefined, 2)}\n`);
  return EXIT.ok;
}
