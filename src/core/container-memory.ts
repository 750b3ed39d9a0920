/** Reads the container's memory limit. */
import { totalmem } from 'node:os';

/** The memory limit of the container in bytes; undefined if there is none. */
export function readContainerMemory(): number | undefined {
  // Node returns 0 if the limit is unknown, and more than the physical memory if there is none.
  const limit = process.constrainedMemory();
  return limit > 0 && limit < totalmem() ? limit : undefined;
}
