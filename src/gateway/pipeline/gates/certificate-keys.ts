/** Fetches the certificate that a delivery names in a header, from the hosts of its sender only. */
import type { KeyObject } from 'node:crypto';
import { type Refusal, refuse } from '../../../core/refusal.ts';
import type { ParsedHead } from '../../../core/request.ts';
import type { CertificateKey } from '../../../verify/keys/certificates.ts';
import { RemoteFailure } from '../../../verify/keys/https-get.ts';
import type { CertificateDescription } from '../../../verify/schemes/key-description.ts';
import type { VerifyKey } from '../../../verify/schemes/scheme.ts';
import type { FetchedKeys, FetchKeys } from './signature.ts';

/** The last part of the path: no dots alone, no escapes, and nothing that a server could take for another path. */
const FILE_NAME = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$/;
const MAX_URL_LENGTH = 512;

/** Creates the function that fetches the keys of a delivery. */
export function createCertificateKeys(
  description: CertificateDescription,
  parts: {
    /** The key of the certificate at a pinned URL that a client sent, which must have one of the names; rejects with RemoteFailure. */
    readonly toKey: (url: URL, client: string, names: readonly string[]) => Promise<CertificateKey>;
    /** Undefined for a key that the scheme cannot use. */
    readonly toVerifyKey: (name: string, key: KeyObject) => VerifyKey | undefined;
  },
): FetchKeys {
  const { header, names } = description;
  const field = header.toLowerCase();
  return async ({ headers, client }: ParsedHead): Promise<FetchedKeys | Refusal> => {
    const text = headers.get(field) ?? '';
    if (text === '') return refuse('missing_signature', 'missing_signature');
    const url = toPinnedUrl(text, description);
    if (url === undefined)
      return refuse('malformed_signature', 'malformed_signature', `${header} does not point to a certificate of the sender`);
    try {
      const { key, onVerified } = await parts.toKey(url, client.address, names);
      const verifyKey = parts.toVerifyKey(url.hostname, key);
      if (verifyKey !== undefined) return { keys: [verifyKey], onVerified };
      return refuse('secret_unavailable', 'secret_unavailable', `${url.host}: the key of the certificate cannot be used`);
    } catch (thrown) {
      // A problem of ours, of the network or of the sender's host: the sender retries.
      if (thrown instanceof RemoteFailure) return refuse('secret_unavailable', 'secret_unavailable', thrown.message);
      throw thrown;
    }
  };
}

/** Anyone can write a URL into a request, so nothing is fetched from another host or path. */
function toPinnedUrl(text: string, { hosts, path }: CertificateDescription): URL | undefined {
  if (text.length > MAX_URL_LENGTH || !URL.canParse(text)) return undefined;
  const url = new URL(text);
  const file = url.pathname.startsWith(path) ? url.pathname.slice(path.length) : '';
  // The URL as it is written: a parser that resolves dots or escapes could make it another one.
  const isPlain = text === `https://${url.hostname}${url.pathname}`;
  return isPlain && hosts.includes(url.hostname) && FILE_NAME.test(file) ? url : undefined;
}
