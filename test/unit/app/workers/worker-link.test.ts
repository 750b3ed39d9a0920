import { once } from 'node:events';
import { MessageChannel } from 'node:worker_threads';
import { expect, onTestFinished, test } from 'vitest';
import { PostedLines } from '../../../../src/app/workers/worker-link.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { until } from '../../../support/gate.ts';

const start = () => {
  const clock = new FakeClock();
  const { port1, port2 } = new MessageChannel();
  onTestFinished(() => port1.close());
  const lines = new PostedLines(port2, clock, 250);
  return { clock, lines, port: port1 };
};

test('passes lines on together, after the interval or when there are many', async () => {
  const { clock, lines, port } = start();
  lines.write('a\n');
  lines.write('b\n');
  await clock.advance(250);
  expect(await once(port, 'message')).toEqual(['a\nb\n']);
  lines.write(`${'x'.repeat(13_000)}\n`);
  expect(((await once(port, 'message')) as string[])[0]).toHaveLength(13_001);
});

test('drops and counts lines while the main thread writes none', async () => {
  const { lines, port } = start();
  const line = `${'x'.repeat(13_000)}\n`;
  for (let i = 0; i < 200; i++) lines.write(line);
  const dropped = lines.takeDropped();
  expect(dropped).toBe(200 - Math.floor((2 * 1024 * 1024) / line.length));
  expect(lines.takeDropped()).toBe(0);
  // Once they are written, there is room again.
  port.postMessage(2 * 1024 * 1024 - 1_000);
  await until(() => {
    lines.write(line);
    return lines.takeDropped() === 0;
  });
});
