import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { joinSmallChunks } from '../../../../src/http/server/body-source.ts';

function open(): { readonly stream: Readable; readonly read: () => Buffer[] } {
  const stream = new Readable({ read: () => undefined });
  joinSmallChunks(stream, () => stream);
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
  while (stream.readableLength < stream.readableHighWaterMark) {
    while (stream.push(Buffer.from('x'.repeat(100)))) pushed++;
    pushed++;
    for (let i = 0; i < 3; i++) await turn();
  }
  expect(stream.readableLength).toBeLessThan(stream.readableHighWaterMark + 20_000);
  const chunks = read();
  stream.push(null);
  await new Promise((resolve) => stream.once('end', resolve));
  expect(join(chunks)).toBe('x'.repeat(100 * pushed));
  expect(chunks.length).toBeLessThan(20);
});

test('asks for a pause after 64 small chunks of a turn, and the stream resumes by itself', async () => {
  let reads = 0;
  const stream = new Readable({ read: () => void reads++ });
  joinSmallChunks(stream, () => stream);
  stream.resume();
  await turn();
  expect(Array.from({ length: 65 }, () => stream.push(Buffer.from('x'))).indexOf(false)).toBe(63);
  const before = reads;
  while (reads === before) await turn();
  expect(stream.push(Buffer.from('x'))).toBe(true);
});

test('one stream with many small chunks continues in each turn', async () => {
  const read: number[] = [];
  const streams = Array.from({ length: 10 }, (_, index) => {
    const stream = new Readable({ read: () => undefined });
    joinSmallChunks(stream, () => stream);
    stream.on('data', () => read.push(index));
    for (let i = 0; i < 100; i++) stream.push(Buffer.from('x'));
    return stream;
  });
  let most = 0;
  while (read.length < streams.length) {
    const before = read.length;
    await turn();
    most = Math.max(most, read.length - before);
  }
  expect(read).toEqual(streams.map((_, index) => index));
  expect(most).toBe(1);
});

test('drops what follows once there are too many', async () => {
  const stream = new Readable({ read: () => undefined });
  joinSmallChunks(
    stream,
    () => stream,
    (bytes) => bytes < 3,
  );
  const chunks: Buffer[] = [];
  stream.on('data', (chunk: Buffer) => chunks.push(chunk));
  for (const text of ['a', 'bbb', 'c']) stream.push(Buffer.from(text));
  stream.push(null);
  await turn();
  await turn();
  expect(join(chunks)).toBe('a');
  expect(stream.readableEnded).toBe(false);
});

test('drops the remaining bytes when the stream is destroyed', async () => {
  const { stream } = open();
  stream.push(Buffer.from('x'));
  stream.destroy();
  await turn();
  await turn();
  expect(stream.readableLength).toBe(0);
});
