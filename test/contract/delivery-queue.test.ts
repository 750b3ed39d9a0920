import { createSqliteStore } from '../support/queue/sqlite-store.ts';
import { describeDeliveryQueue } from './delivery-queue.contract.ts';

describeDeliveryQueue('the delivery queue in SQLite', createSqliteStore);
