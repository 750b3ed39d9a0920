/** Creates signed deliveries for the load: unique IDs, current timestamps, and bodies of a given size. */
import { createHmac, createSecretKey, randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';

/** A list of deliveries to send. */
export interface Deliveries {
  /** The prefix of all IDs; unique per list. */
  readonly prefix: string;
  readonly count: number;
  /** One line per delivery: ID, timestamp and signature, separated by spaces. */
  readonly file: string;
  /** The body of all deliveries. */
  readonly bodyFile: string;
}

const ENVELOPE = { type: 'invoice.paid', id: 'evt_bench', created: 1_700_000_000, data: { text: '' } };

/** Creates a secret in the format of Standard Webhooks. */
export function makeSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`;
}

/** Creates a JSON body of exactly `bytes` bytes. */
export function makeBody(bytes: number): Buffer {
  const room = bytes - JSON.stringify(ENVELOPE).length;
  return Buffer.from(JSON.stringify({ ...ENVELOPE, data: { text: 'x'.repeat(room) } }));
}

/** Signs a list and writes it to a file; the signatures of a forged list use another key. */
export function writeDeliveries(
  list: { folder: string; name: string; count: number; bodyBytes: number; isForged?: boolean },
  secret: string,
): Deliveries {
  const { folder, name, count, bodyBytes, isForged = false } = list;
  const key = createSecretKey(Buffer.from((isForged ? makeSecret() : secret).slice('whsec_'.length), 'base64'));
  const body = makeBody(bodyBytes);
  const prefix = `msg_${randomBytes(6).toString('hex')}_`;
  const timestamp = Math.floor(Date.now() / 1000);
  const lines: string[] = [];
  for (let i = 0; i < count; i++) {
    const id = prefix + i.toString(36).padStart(6, '0');
    const signature = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64');
    lines.push(`${id} ${timestamp} v1,${signature}\n`);
  }
  const file = `${folder}/${name}.txt`;
  const bodyFile = `${folder}/${name}.body`;
  writeFileSync(file, lines.join(''));
  writeFileSync(bodyFile, body);
  return { prefix, count, file, bodyFile };
}
