/** Executes a message of operations. */
import { freeChunk, toOwnBytes } from '../../../core/reading.ts';
import type { Batch, BatchReply } from '../messages.ts';
import type { Operation, Reply, Store, Task } from '../sql/store.ts';

/** Copying smaller bodies is cheaper than moving their memory. */
const MIN_MOVED_BYTES = 4_096;

/** Runs the operations: writes first, so that the reads of the same turn see them. */
export async function executeBatch(store: Store, batch: Batch): Promise<BatchReply> {
  const operations = JSON.parse(batch.operations) as Operation[];
  const replies: Reply[] = [];
  const writes = findWrites(store, operations, batch.bodies);
  const written = writes.length === 0 ? [] : await store.write(writes);
  freeChunk(Buffer.from(batch.bodies));
  for (let i = 0; i < writes.length; i++) replies[writes[i]?.index ?? 0] = written[i] as Reply;
  const bodies: Uint8Array[] = [];
  for (let index = 0; index < operations.length; index++) {
    const operation = operations[index] as Operation;
    if (!store.isWrite(operation)) replies[index] = await store.read(operation, bodies);
  }
  return { replies: JSON.stringify(replies), bodies: packReply(bodies) };
}

/** Of a reply: the small bodies in one buffer, and each large one in the memory that SQLite copied it to. */
function packReply(bodies: readonly Uint8Array[]): ArrayBuffer[] {
  const isSmall = ({ length }: Uint8Array): boolean => length < MIN_MOVED_BYTES;
  const large = bodies.filter((body) => !isSmall(body)).map(({ buffer }) => buffer as ArrayBuffer);
  return [packBytes(bodies.filter(isSmall)), ...large];
}

/** Returns a function that takes the next body of a reply, in its order, and copies small ones. */
export function createUnpacker([packed = new ArrayBuffer(0), ...large]: readonly ArrayBuffer[]): (length: number) => Buffer {
  let offset = 0;
  let next = 0;
  return (length) => {
    if (length >= MIN_MOVED_BYTES) return Buffer.from(large[next++] as ArrayBuffer);
    const view = Buffer.from(packed, offset, length);
    offset += length;
    return toOwnBytes(view);
  };
}

/** The writes, with views of their bodies, and their places in the batch. */
function findWrites(store: Store, operations: readonly Operation[], bodies: ArrayBuffer): (Task & { readonly index: number })[] {
  const writes: (Task & { readonly index: number })[] = [];
  let offset = 0;
  // By index, here and in what a transaction does for each event: the pairs of `entries` were a quarter of the garbage.
  for (let index = 0; index < operations.length; index++) {
    const operation = operations[index] as Operation;
    if (!store.isWrite(operation)) continue;
    const own: Buffer[] = [];
    if (operation.kind === 'append')
      for (const { bodyLength } of operation.events) {
        own.push(Buffer.from(bodies, offset, bodyLength));
        offset += bodyLength;
      }
    writes.push({ index, operation, bodies: own });
  }
  return writes;
}

/** Copies: the owner of the bodies keeps them. */
export function packBytes(bodies: readonly Uint8Array[]): ArrayBuffer {
  let total = 0;
  for (const { length } of bodies) total += length;
  const packed = new ArrayBuffer(total);
  const bytes = new Uint8Array(packed);
  let offset = 0;
  for (const body of bodies) {
    bytes.set(body, offset);
    offset += body.length;
  }
  return packed;
}
