/** `sidegate schema`: the config's JSON Schema. */
import { toJsonSchema } from '../config/json-schema.ts';
import type { Io } from './io.ts';

/** Prints it. */
export function printSchema(io: Io): void {
  io.stdout(`${JSON.stringify(toJsonSchema(), undefined, 2)}\n`);
}
