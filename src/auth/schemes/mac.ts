/** MACs for senders that require proof that the gate has the key. */
import { ALGORITHMS } from './algorithms.ts';
import { Material } from './keys.ts';
import type { VerifyKey } from './scheme.ts';

/** HMAC-SHA256 of ASCII text; undefined for a key of another algorithm. */
export function toMac({ material }: VerifyKey, text: string): Buffer | undefined {
  if (!(material instanceof Material) || material.algorithm !== 'hmac-sha256') return undefined;
  return ALGORITHMS['hmac-sha256'].sign(material.key, [text]);
}
