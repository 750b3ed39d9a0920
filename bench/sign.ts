/** Makes signed deliveries for the load: unique ids, timestamps of now, and bodies of a given size. */
import { createHmac, createSecretKey, randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';

/** A list to send. */
export interface Deliveries {
  /** What all ids begin with; unique for each list. */
  readonly prefix: string;
  readonly count: number;
  /** One line for each delivery: id, timestamp and signature, parted by a blank. */
  readonly file: string;
  /** The content that all of them carry. */
  readonly bodyFile: string;
}

/** What to make. */
export interface DeliveryOptions {
  readonly folder: string;
  readonly name: string;
  readonly count: number;
  readonly bodyBytes: number;
  readonly isForged?: boolean;
}

const ENVELOPE = { type: 'invoice.paid', id: 'evt_bench', created: 1_700_000_000, data: { text: '' } };

/** A fresh secret in the form of Standard Webhooks. */
export function makeSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`;
}

/** JSON content of exactly `bytes` bytes. */
export function makeBody(bytes: number): Buffer {
  const room = bytes - JSON.stringify(ENVELOPE).length;
  return Buffer.from(JSON.stringify({ ...ENVELOPE, data: { text: 'x'.repeat(room) } }));
}

/** Signs a list and writes it down; the signatures of a forged list were made with another key. */
export function writeDeliveries(options: DeliveryOptions, secret: string): Deliveries {
  const { folder, name, count, bodyBytes, isForged = false } = options;
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
