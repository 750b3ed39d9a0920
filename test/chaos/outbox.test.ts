/** Ten thousand events through the outbox, while the gate is killed and PostgreSQL is stopped at random points. */
import { expect, test } from 'vitest';
import { makeFolder, useApp, usePostgres } from '../support/fixtures.ts';
import { runCrashes } from '../support/outbox-crashes.ts';
import { createRandom } from '../support/seeded.ts';

const app = useApp();
const server = usePostgres();

test.each([
  ['the gate is killed', false],
  ['the gate is killed and PostgreSQL is stopped', true],
])('sends every committed event once into the queue, and no other, while %s 40 times', async (_, restartsServer) => {
  const seed = Date.now() % 1_000_000;
  const plan = { events: 10_000, writers: 8, pause: 120, kills: 40, restartsServer, random: createRandom(seed) };
  const { committed, received, unknown, storedEvents, waitingRows } = await runCrashes(server, app, makeFolder(), plan);
  const isSent = (id: string): boolean => received.has(id);
  expect({ seed, lost: [...committed].filter((id) => !isSent(id)) }).toEqual({ seed, lost: [] });
  expect({ seed, extra: [...received].filter((id) => !committed.has(id) && !unknown.has(id)) }).toEqual({ seed, extra: [] });
  expect(storedEvents).toBe(committed.size + [...unknown].filter(isSent).length);
  expect(waitingRows).toBe(0);
});
