/** Where the provider stores events: this is decided here only. */
import type { Milliseconds } from '../../core/clock.ts';
import type { Config, ProviderQueueConfig } from './config.ts';
import { DEFAULT_QUEUE_FILE } from './provider-schema.ts';

/** The database of the provider's queue, and its settings. */
type QueueChoice =
  | ({ readonly kind: 'sqlite' } & NonNullable<ProviderQueueConfig['sqlite']>)
  | ({ readonly kind: 'postgres' } & NonNullable<ProviderQueueConfig['postgres']>);

/** Chooses the database that the config names; a SQLite file if it names none. */
export function chooseQueue({ sqlite, postgres }: Pick<ProviderQueueConfig, 'sqlite' | 'postgres'>): QueueChoice {
  if (postgres !== undefined) return { kind: 'postgres', ...postgres };
  return { kind: 'sqlite', path: DEFAULT_QUEUE_FILE, allowVolatile: false, ...sqlite };
}

/** How long storing an event can take; 0 without a limit: a file has none, and without `provider` nothing is stored. */
export function toAppendTimeout({ provider }: Pick<Config, 'provider'>): Milliseconds {
  return provider?.queue.postgres?.statementTimeout ?? 0;
}

/** The file of the embedded queue; undefined without `provider`, and if the queue is in PostgreSQL. */
export function queueFileOf({ provider }: Pick<Config, 'provider'>): string | undefined {
  if (provider === undefined) return undefined;
  const choice = chooseQueue(provider.queue);
  return choice.kind === 'sqlite' ? choice.path : undefined;
}
