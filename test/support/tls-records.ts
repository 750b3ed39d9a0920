/** TLS 1.3 records that Node cannot send, such as KeyUpdate (RFC 8446 §4.6.3, §5.2, §7.1–§7.3). */
import { createCipheriv, createHmac } from 'node:crypto';

/** The only cipher suite that `TlsRecords` can use. */
export const RECORD_CIPHER = 'TLS_AES_128_GCM_SHA256';
const HANDSHAKE = 22;
const APPLICATION_DATA = 23;
const KEY_UPDATE_REQUESTED = Buffer.from([24, 0, 0, 1, 1]);
const TAG_BYTES = 16;

function expand(secret: Buffer, label: string, length: number): Buffer {
  const name = Buffer.from(`tls13 ${label}`);
  const info = Buffer.concat([Buffer.from([0, length, name.length]), name, Buffer.from([0, 1])]);
  return createHmac('sha256', secret).update(info).digest().subarray(0, length);
}

/** The traffic secret of one side. Call it before the handshake: `socket` is a client or a server. */
export function findSecret(
  socket: { on(event: 'keylog', listener: (line: Buffer) => void): unknown },
  side: 'CLIENT' | 'SERVER',
): () => Buffer {
  let secret: Buffer | undefined;
  socket.on('keylog', (line: Buffer) => {
    const [label, , hex = ''] = line.toString().trim().split(' ');
    if (label === `${side}_TRAFFIC_SECRET_0`) secret = Buffer.from(hex, 'hex');
  });
  return () => {
    if (secret === undefined) throw new Error('the handshake is not complete, or has another version');
    return secret;
  };
}

/** The records of one side, after those that Node has sent. */
export class TlsRecords {
  #secret: Buffer;
  #sequence: number;

  constructor(secret: Buffer, sent: number) {
    this.#secret = secret;
    this.#sequence = sent;
  }

  data(content: string | Buffer): Buffer {
    return this.#toRecord(Buffer.from(content), APPLICATION_DATA);
  }

  /** The peer must answer it. */
  keyUpdate(): Buffer {
    const record = this.#toRecord(KEY_UPDATE_REQUESTED, HANDSHAKE);
    this.#secret = expand(this.#secret, 'traffic upd', 32);
    this.#sequence = 0;
    return record;
  }

  #toRecord(content: Buffer, type: number): Buffer {
    const head = Buffer.from([APPLICATION_DATA, 3, 3, 0, 0]);
    head.writeUInt16BE(content.length + 1 + TAG_BYTES, 3);
    const nonce = Buffer.from(expand(this.#secret, 'iv', 12));
    nonce.writeUInt32BE((nonce.readUInt32BE(8) ^ this.#sequence++) >>> 0, 8);
    const cipher = createCipheriv('aes-128-gcm', expand(this.#secret, 'key', 16), nonce).setAAD(head);
    return Buffer.concat([head, cipher.update(content), cipher.update(Buffer.of(type)), cipher.final(), cipher.getAuthTag()]);
  }
}
