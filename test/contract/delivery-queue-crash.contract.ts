import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { execPath } from 'node:process';
import { describe, expect, test } from 'vitest';
import { until } from '../support/gate.ts';
import { deliverAll } from '../support/queue/lanes.ts';
import type { QueueFixture } from './delivery-queue.contract.ts';

const CHILD = join(import.meta.dirname, '..', 'support', 'queue', 'appending-child.ts');
const CRASHES = 3;

interface AppendingChild {
  readonly process: ChildProcess;
  /** Whole lines that it wrote. */
  readonly lines: () => readonly string[];
}

function startChild(module: string, argument: string, prefix: string): AppendingChild {
  const child = spawn(execPath, [CHILD, module, argument, prefix], { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', (chunk: Buffer) => {
    text += chunk.toString();
  });
  return { process: child, lines: () => text.split('\n').slice(0, -1) };
}

/** What every queue keeps to when its process is killed. */
export function describeCrashes({ open, store }: QueueFixture): void {
  describe('a crash', () => {
    test('loses nothing that was acknowledged: every stored event is there, every delivered one stays delivered, the rest is due again', {
      timeout: 120_000,
    }, async () => {
      const { child, clock } = store();
      const stored = new Set<string>();
      const delivered = new Set<string>();
      for (let crash = 0; crash < CRASHES; crash++) {
        const running = startChild(child.module, child.argument, `c${crash}`);
        const before = stored.size;
        await until(() => running.lines().length > 400 + 150 * crash);
        const ended = new Promise((resolve) => running.process.once('close', resolve));
        running.process.kill('SIGKILL');
        await ended;
        for (const line of running.lines()) {
          const [word, id = '', endpoint = ''] = line.split(' ');
          if (word === 'stored') stored.add(id);
          else delivered.add(`${id} ${endpoint}`);
        }
        expect(stored.size).toBeGreaterThan(before);
      }
      const queue = await open();
      const received = new Set<string>();
      const serving = deliverAll(
        queue,
        () => clock.now(),
        ({ event, endpoint }) => received.add(`${event} ${endpoint}`),
      );
      await until(async () => (await queue.stats(clock.now())).waiting === 0);
      await serving.stop();
      // A delivery is sent twice only if the crash came before its settlement was acknowledged.
      expect([...delivered].filter((each) => received.has(each))).toEqual([]);
      for (const id of stored) {
        expect(await queue.getEvent(id), id).toBeDefined();
        const number = Number(id.split('-')[1]);
        for (const endpoint of [`e${number % 5}`, `e${5 + (number % 3)}`])
          expect(
            received.has(`${id} ${endpoint}`) || delivered.has(`${id} ${endpoint}`) || (await isDelivered(id, endpoint)),
            id,
          ).toBe(true);
      }

      async function isDelivered(event: string, endpoint: string): Promise<boolean> {
        const { found: deliveries } = await queue.find({ event, endpoint, states: ['delivered'] }, { limit: 1 });
        return deliveries.length === 1;
      }
    });
  });
}
