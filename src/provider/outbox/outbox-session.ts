/** One connection of the outbox: it listens, and runs transactions one after the other. */
import type pg from 'pg';
import { SidegateError } from '../../core/errors.ts';
import { onEvent, runDetached } from '../../core/safe-events.ts';
import {
  type ConnectionResult,
  createPostgresClient,
  formatPostgres,
  PostgresError,
  type PostgresTarget,
  repeatTransaction,
  toPostgresError,
} from '../../state/postgres.ts';
import { migrate, OUTBOX_CHANNEL, OUTBOX_MIGRATIONS, readSetup, toBegin } from './outbox-table.ts';

const SETUP_HINT = 'run the SQL of docs/outbox.md as the owner of the schema';

/** A connection that was used until the first error. */
export class OutboxSession {
  readonly #target: PostgresTarget;
  readonly #schema: string;
  readonly #client: pg.Client;
  #isOpen = true;

  constructor(target: PostgresTarget, schema: string, onNotified: () => void, onEnded: () => void) {
    this.#target = target;
    this.#schema = schema;
    this.#client = createPostgresClient(target);
    onEvent(this.#client, 'notification', onNotified);
    // The pending query, or the next one, reports the error.
    onEvent(this.#client, 'error', () => {
      this.#isOpen = false;
      onEnded();
    });
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Connects, creates the tables if they are missing, checks the rights of the role, and listens. Rejects with a PostgresError. */
  async open(): Promise<void> {
    const { version } = await this.check();
    if (version < OUTBOX_MIGRATIONS.length) {
      await this.transaction(migrate);
      await this.#readSetup();
    }
    await this.#try(() => this.#client.query(`LISTEN ${OUTBOX_CHANNEL}`));
  }

  /** Connects and checks the tables and the rights of the role. */
  async check() {
    await this.#try(() => this.#client.connect());
    return this.#readSetup();
  }

  /** Runs `work` in one transaction, again if only another transaction made it fail. After a rejection, the session must be ended. */
  transaction<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
    const run = async (): Promise<T> => {
      await this.#client.query(toBegin(this.#schema));
      const result = await work(this.#client);
      await this.#client.query('COMMIT');
      return result;
    };
    return this.#try(() => repeatTransaction(run, () => this.#client.query('ROLLBACK')));
  }

  /** PostgreSQL rolls back what was not committed. */
  end(): void {
    this.#isOpen = false;
    runDetached(this.#client.end().catch(() => undefined));
  }

  async #try<T>(action: () => Promise<T>): Promise<T> {
    try {
      return await action();
    } catch (thrown) {
      this.#isOpen = false;
      throw thrown instanceof SidegateError ? thrown : toPostgresError(thrown, this.#target);
    }
  }

  async #readSetup() {
    const setup = await this.transaction((client) => readSetup(client, this.#schema));
    const { version, canCreate, missingRights } = setup;
    const { user } = this.#target;
    const title = formatPostgres(this.#target);
    if (version === 0 && !canCreate)
      throw new PostgresError(
        `${title}: the schema ${this.#schema} has no table sidegate_outbox that the role ${user} can see, and the role may not create it`,
        SETUP_HINT,
      );
    if (missingRights.length > 0)
      throw new PostgresError(`${title}: the role ${user} lacks ${missingRights.join(', ')}`, `grant it as docs/outbox.md shows`);
    return setup;
  }
}

/** Connects once, and checks the tables and the rights; changes nothing. */
export async function testOutbox(target: PostgresTarget, schema: string): Promise<ConnectionResult> {
  const title = formatPostgres(target);
  const ignore = (): void => undefined;
  const session = new OutboxSession(target, schema, ignore, ignore);
  try {
    const { version } = await session.check();
    return {
      title: version === 0 ? `${title} (the start creates the tables of the outbox)` : title,
      failure: undefined,
      hint: '',
    };
  } catch (thrown) {
    const { message, hint } = toPostgresError(thrown, target);
    return { title, failure: message, hint };
  } finally {
    session.end();
  }
}
