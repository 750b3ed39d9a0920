import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { joinSmallChunks } from '../../../../src/http/server/body-source.ts';

function open(): { readonly stream: Readable; readonly read: () => Buffer[] } {
  const stream = new Readable({ read: () => undefined });
  joinSmallChunks(stream);
  const chunks: Buffer[] = [];
  return {
    stream,
    read: () => {
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      return chunks;
    },
  };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const join = (chunks: readonly Buffer[]): string => Buffer.concat(chunks).toString();

test('joins the chunks of one turn', async () => {
  const { stream, read } = open();
  const chunks = read();
  for (const letter of 'abcdef') stream.push(Buffer.from(letter));
  await turn();
  await turn();
  expect(chunks.map(String)).toEqual(['abcdef']);
  stream.push(Buffer.from('g'));
  await turn();
  await turn();
  expect(chunks.map(String)).toEqual(['abcdef', 'g']);
});

test('keeps the order of small and large chunks, and ends after the last', async () => {
  const { stream, read } = open();
  const chunks = read();
  const ended = new Promise((resolve) => stream.once('end', resolve));
  stream.push(Buffer.from('a'));
  stream.push(Buffer.from('B'.repeat(2_000)));
  stream.push(Buffer.from('c'));
  stream.push(null);
  await ended;
  expect(join(chunks)).toBe(`a${'B'.repeat(2_000)}c`);
});

test('asks for a pause while nobody reads, and buffers few chunks', async () => {
  const { stream, read } = open();
  let pushed = 0;
  while (stream.push(Buffer.from('x'))) pushed++;
  expect(pushed).toBeGreaterThanOrEqual(stream.readableHighWaterMark - 1);
  expect(pushed).toBeLessThan(stream.readableHighWaterMark + 20_000);
  const chunks = read();
  stream.push(null);
  await new Promise((resolve) => stream.once('end', resolve));
  expect(join(chunks)).toBe('x'.repeat(pushed + 1));
  expect(chunks.length).toBeLessThan(10);
});

test('drops the remaining bytes when the stream is destroyed', async () => {
  const { stream } = open();
  stream.push(Buffer.from('x'));
  stream.destroy();
  await turn();
  await turn();
  expect(stream.readableLength).toBe(0);
});
