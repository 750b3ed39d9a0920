/** Opens a queue in PostgreSQL, for test/support/queue/appending-child.ts. The argument is the schema, a space, and the URL. */
import type { DeliveryQueue } from '../../../src/provider/queue/delivery-queue.ts';
import { openPostgresQueue } from './postgres-store.ts';

export function openQueue(argument: string): Promise<DeliveryQueue> {
  const [schema = '', url = ''] = argument.split(' ');
  return openPostgresQueue(url, schema);
}
