/** MACs for senders that require proof that the gate has the key. */
import { ALGORITHMS } from './algorithms.ts';
import { Material } from './keys.ts';
import type { VerifyKey } from './scheme.ts';

/** The HMACs that handshakes require. */
export type HandshakeMac = 'hmac-sha1' | 'hmac-sha256';

/** HMAC of ASCII text; undefined without a key, and for one of another algorithm. */
export function toMac(key: VerifyKey | undefined, text: string, algorithm: HandshakeMac = 'hmac-sha256'): Buffer | undefined {
  const material = key?.material;
  if (!(material instanceof Material) || material.algorithm !== algorithm) return undefined;
  return ALGORITHMS[algorithm].sign(material.key, [text]);
}
