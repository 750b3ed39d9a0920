/** Stores endpoints that were created by the API. */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { StoredEndpoint } from '../../../endpoints/endpoint-store.ts';
import { getRows } from './database.ts';

/** The table of endpoints, in transactions of the caller. */
export class EndpointTable {
  readonly #list: StatementSync;
  readonly #insert: StatementSync;
  readonly #update: StatementSync;
  readonly #remove: StatementSync;

  constructor(db: DatabaseSync) {
    this.#list = db.prepare('SELECT id, version, json FROM endpoint ORDER BY id');
    this.#insert = db.prepare('INSERT INTO endpoint VALUES (?, 1, ?) ON CONFLICT (id) DO NOTHING');
    this.#update = db.prepare('UPDATE endpoint SET version = ?, json = ? WHERE id = ? AND version = ?');
    this.#remove = db.prepare('DELETE FROM endpoint WHERE id = ? AND version = coalesce(?, version)');
  }

  list(): readonly StoredEndpoint[] {
    return getRows<{ id: string; version: number; json: string }>(this.#list);
  }

  put({ id, version, json }: StoredEndpoint): boolean {
    const { changes } = version === 1 ? this.#insert.run(id, json) : this.#update.run(version, json, id, version - 1);
    return changes === 1;
  }

  remove(id: string, version: number | undefined): boolean {
    return this.#remove.run(id, version ?? null).changes === 1;
  }
}
