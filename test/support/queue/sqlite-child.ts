/** Opens a SQLite queue, for test/support/queue/appending-child.ts. */
import type { DeliveryQueue } from '../../../src/provider/queue/delivery-queue.ts';
import { openSqliteQueue } from './sqlite-store.ts';

export function openQueue(path: string): Promise<DeliveryQueue> {
  return openSqliteQueue(path);
}
