/** Reads the CAs of the webhook port's callers. */

import { readText } from '../../config/load/document.ts';
import { readCertificates } from '../certificates/chain.ts';

/** PEM with at least one certificate, or why there is none; without one, the API server could not be authenticated. */
export async function readClientCa(file: string): Promise<{ readonly clientCa: Buffer } | { readonly problem: string }> {
  const text = await readText(file);
  if (typeof text !== 'string') return { problem: text.message };
  return readCertificates(text).length > 0 ? { clientCa: Buffer.from(text) } : { problem: 'the file contains no certificate' };
}
