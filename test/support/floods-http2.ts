/** Floods over HTTP/2: large bodies on many streams, and frames of one byte. */
import { connect } from 'node:http2';
import { FLAG, FRAME, openFrames, toBlock, toFrame } from './h2-frames.ts';

/** A flood of bodies. */
export interface Http2Flood {
  readonly port: number;
  readonly sessions: number;
  /** At once, on each session. */
  readonly streams: number;
  readonly milliseconds: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/** Keeps all streams busy until the time is over; resolves with how many responses there were of each status, 0 for none. */
export async function floodHttp2({
  port,
  sessions,
  streams,
  milliseconds,
  headers,
  body,
}: Http2Flood): Promise<Readonly<Record<number, number>>> {
  const statuses: Record<number, number> = {};
  const opened = Array.from({ length: sessions }, () =>
    connect(`https://localhost:${port}`, { rejectUnauthorized: false }).on('error', () => undefined),
  );
  let isOver = false;
  const timer = setTimeout(() => {
    isOver = true;
    for (const session of opened) session.destroy();
  }, milliseconds);
  const run = async (session: (typeof opened)[number]): Promise<void> => {
    while (!isOver && !session.destroyed)
      await new Promise<void>((resolve) => {
        const stream = session.request({ ':method': 'POST', ':path': '/hooks/billing', ...headers });
        let status = 0;
        stream.once('response', (fields) => {
          status = fields[':status'] ?? 0;
        });
        stream
          .on('error', () => undefined)
          .once('close', () => {
            statuses[status] = (statuses[status] ?? 0) + 1;
            setTimeout(resolve, 5);
          });
        stream.resume();
        stream.end(body);
      });
  };
  await Promise.all(opened.flatMap((session) => Array.from({ length: streams }, () => run(session))));
  clearTimeout(timer);
  return statuses;
}

const STREAMS = 4;
/** All of them fit into the first window of a connection: 65,535 bytes. */
const FRAMES_PER_STREAM = 15_000;

/** Sends frames of one byte on unfinished streams to `path`, as many as one connection may before anybody reads; gives back how to end it. */
export async function openTinyFrames(port: number, ca: string, path: string): Promise<() => void> {
  const client = await openFrames(port, ca);
  const fields = [
    [':method', 'POST'],
    [':scheme', 'https'],
    [':authority', 'localhost'],
    [':path', path],
  ] as const;
  for (let i = 0; i < STREAMS; i++) {
    const id = 2 * i + 1;
    client.socket.write(toFrame(FRAME.headers, FLAG.endHeaders, id, toBlock(fields)));
    const frame = toFrame(FRAME.data, 0, id, Buffer.from('x'));
    client.socket.write(Buffer.concat(Array.from({ length: FRAMES_PER_STREAM }, () => frame)));
  }
  return () => client.socket.destroy();
}
