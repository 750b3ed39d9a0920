/** The databases that a queue can be in, for tests that run the sidecar with each. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { makeFolder } from '../fixtures.ts';
import type { Sections } from '../gate.ts';
import { startPostgres } from '../postgres.ts';

export type Engine = 'SQLite' | 'PostgreSQL';

/** The config's `queue` in a new database, which ends with the test. */
export async function startQueue(engine: Engine): Promise<Sections> {
  if (engine === 'SQLite') return { sqlite: { path: join(makeFolder(), 'queue.db'), allowVolatile: true } };
  const server = await startPostgres({ config: ['fsync = on'] });
  onTestFinished(() => server.stop());
  const file = join(makeFolder(), 'url');
  writeFileSync(file, server.url());
  return { postgres: { url: { file } } };
}
