/** How much memory the container gives this process. */
import { totalmem } from 'node:os';

/** The memory limit of the container in bytes; undefined if there is none. */
export function readContainerMemory(): number | undefined {
  // 0 where it is not known, and a number beyond all memory where there is no limit.
  const limit = process.constrainedMemory();
  return limit > 0 && limit < totalmem() ? limit : undefined;
}
