/** An HTTP/2 client that is exact to the frame (RFC 9113 §4, RFC 7541 §6.2), for what no library would send. */
import { readFileSync } from 'node:fs';
import { connect, type TLSSocket } from 'node:tls';

/** Types of frames. */
export const FRAME = {
  data: 0,
  headers: 1,
  rstStream: 3,
  settings: 4,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;
/** Flags of frames. */
export const FLAG = { endStream: 0x1, ack: 0x1, endHeaders: 0x4 } as const;

/** A frame that came. */
export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

/** A connection with HTTP/2 chosen, its preface and settings sent. */
export interface FrameClient {
  readonly socket: TLSSocket;
  readonly frames: readonly Frame[];
  /** Resolves with the first frame, past or to come, that fits; rejects when the connection ends before. */
  next(fits: (frame: Frame) => boolean): Promise<Frame>;
  readonly closed: Promise<void>;
}

const HEAD_BYTES = 9;

/** One frame's bytes. */
export function toFrame(type: number, flags: number, stream: number, payload: Uint8Array = new Uint8Array()): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** What a client sends first: the preface and its settings. */
export const PREFACE = Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), toFrame(FRAME.settings, 0, 0)]);

/** A header block: literals without indexing and without Huffman. */
export function toBlock(fields: readonly (readonly [string, string])[]): Buffer {
  return Buffer.concat(fields.flatMap(([name, value]) => [Buffer.from([0]), toLiteral(name), toLiteral(value)]));
}

function toLiteral(text: string): Buffer {
  const bytes = Buffer.from(text, 'latin1');
  const prefix: number[] = [];
  if (bytes.length < 127) prefix.push(bytes.length);
  else {
    prefix.push(127);
    let rest = bytes.length - 127;
    for (; rest >= 128; rest >>= 7) prefix.push((rest & 127) | 128);
    prefix.push(rest);
  }
  return Buffer.concat([Buffer.from(prefix), bytes]);
}

/** Connects to a gate on this machine. */
export async function openFrames(port: number, ca: string): Promise<FrameClient> {
  const socket = connect({ port, host: '127.0.0.1', servername: 'localhost', ca: readFileSync(ca), ALPNProtocols: ['h2'] });
  socket.on('error', () => undefined);
  await new Promise<void>((resolve) => socket.once('secureConnect', resolve));
  const frames: Frame[] = [];
  let onFrame = (): void => undefined;
  let pending = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => {
    pending = Buffer.concat([pending, chunk]);
    for (;;) {
      const length = pending.length < HEAD_BYTES ? Number.POSITIVE_INFINITY : pending.readUIntBE(0, 3) + HEAD_BYTES;
      if (pending.length < length) break;
      const [type, flags, stream] = [pending.readUInt8(3), pending.readUInt8(4), pending.readUInt32BE(5)];
      frames.push({ type, flags, stream, payload: pending.subarray(HEAD_BYTES, length) });
      pending = pending.subarray(length);
    }
    onFrame();
  });
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  socket.write(PREFACE);
  return {
    socket,
    frames,
    closed,
    next: (fits) =>
      new Promise((resolve, reject) => {
        onFrame = () => {
          const found = frames.find(fits);
          if (found !== undefined) resolve(found);
        };
        onFrame();
        void closed.then(() => reject(new Error('the connection ended before')));
      }),
  };
}
