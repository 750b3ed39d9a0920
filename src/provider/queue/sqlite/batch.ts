/** Executes a message of operations. */
import type { Batch, BatchReply, Operation, Reply } from '../operations.ts';
import type { Store, Task } from '../sql/store.ts';
import { packBytes, splitBytes } from './byte-pack.ts';

/** Runs the operations: writes first, so that the reads of the same turn see them. */
export async function executeBatch(store: Store, batch: Batch): Promise<BatchReply> {
  const operations = JSON.parse(batch.operations) as Operation[];
  const replies: Reply[] = [];
  const writes: (Task & { readonly index: number })[] = [];
  let offset = 0;
  for (const [index, operation] of operations.entries()) {
    if (!store.isWrite(operation)) continue;
    const lengths = operation.kind === 'append' ? operation.events.map(({ bodyLength }) => bodyLength) : [];
    writes.push({ index, operation, bodies: splitBytes(batch.bodies, lengths, offset) });
    offset += lengths.reduce((sum, length) => sum + length, 0);
  }
  if (writes.length > 0) for (const [i, reply] of (await store.write(writes)).entries()) replies[writes[i]?.index ?? 0] = reply;
  const bodies: Uint8Array[] = [];
  for (const [index, operation] of operations.entries())
    if (!store.isWrite(operation)) replies[index] = await store.read(operation, bodies);
  return { replies: JSON.stringify(replies), bodies: packBytes(bodies) };
}
