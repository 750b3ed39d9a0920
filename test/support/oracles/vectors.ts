/** The known answers of all senders: test/vectors/handshakes.json, and the files of FILES. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ReceiverKey, SignedDelivery } from './oracle.ts';

const FOLDER = join(import.meta.dirname, '..', '..', 'vectors');

/** A delivery and what must become of it at that time. */
export interface Vector {
  readonly preset: string;
  /** By the sender; by its library; or by a signer written from its document. */
  readonly origin: 'published' | 'sdk' | 'independent';
  readonly source: string;
  readonly secret: ReceiverKey;
  readonly signed: SignedDelivery;
  readonly atEpochSeconds: number;
  /** Settings of the route, if the scheme needs some. */
  readonly receiverId?: string;
  readonly audience?: readonly string[];
  readonly claims?: Readonly<Record<string, readonly (string | boolean)[]>>;
  readonly verdict: 'ok' | 'refused';
  /** What is wrong with it. */
  readonly why?: string;
}

/** A handshake and the answer that it must get; `preset` is the type of the handshake. */
export interface Handshake extends Omit<Vector, 'verdict' | 'why'> {
  readonly answer: {
    readonly status: number;
    readonly json?: unknown;
    readonly text?: string;
    readonly headers?: Readonly<Record<string, string>>;
  };
}

interface Stored extends Omit<Vector, 'secret' | 'signed'> {
  readonly secret: string;
  readonly secretEncoding?: 'utf8' | 'base64' | 'hex';
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly bodyBase64: string;
}

function read<T>(file: string): T[] {
  const stored = JSON.parse(readFileSync(join(FOLDER, file), 'utf8')) as Stored[];
  return stored.map(({ secret: text, secretEncoding: encoding, method, url, headers, bodyBase64, ...rest }) => ({
    ...rest,
    secret: { text, ...(encoding && { encoding }) },
    signed: { method, url, headers, body: Buffer.from(bodyBase64, 'base64') },
  })) as T[];
}

/** Deliveries, by kind of sender. */
const FILES: readonly string[] = ['providers.json', 'signed-fields.json', 'commerce.json', 'developer-tools.json'];

/** Deliveries. */
export function readVectors(): Vector[] {
  return FILES.flatMap((file) => read<Vector>(file));
}

/** Deliveries that are signed with key pairs or tokens. */
export function readAsymmetricVectors(): Vector[] {
  return read('asymmetric.json');
}

/** Handshakes. */
export function readHandshakes(): Handshake[] {
  return read('handshakes.json');
}
