/** The TLS of all connections to servers: nothing that costs much more CPU than with any usual server. Nothing of it is loaded before it is used. */
import { constants } from 'node:crypto';
import { createSecureContext, DEFAULT_CIPHERS, type SecureContext, type SecureContextOptions } from 'node:tls';

/**
 * Without the finite fields of TLS 1.3: OpenSSL 3.0 has one of 8,192 bits, which took 0.14 s. The first one that OpenSSL can read: only 3.5 has `?` for what
 * may be missing and `*` for keys that the first flight contains, and OpenSSL with FIPS has no X25519.
 */
const GROUPS = ['?*X25519MLKEM768:?*X25519:?P-256:?X448:?P-384:?P-521', 'X25519:P-256:X448:P-384:P-521', 'P-256:P-384:P-521'];
/** Each renegotiation is a handshake, which the server could ask for at any time. */
const OPTIONS = constants.SSL_OP_NO_RENEGOTIATION;

/** TLS 1.2 or later; `options`: what the server may be, and what it is shown. Throws for what OpenSSL rejects. */
export function createClientContext(options: Pick<SecureContextOptions, 'ca' | 'cert' | 'key'>): SecureContext {
  return createSecureContext({
    ...options,
    minVersion: 'TLSv1.2',
    ciphers: toCiphers(),
    ecdhCurve: GROUPS.find(isReadable),
    secureOptions: OPTIONS,
  });
}

/** In TLS 1.2, the server chooses the group of DHE: a handshake with a modulus of 9,984 bits took 1.3 s. Without ciphers of TLS 1.2, `!DHE` is an error. */
function toCiphers(): string {
  return /(?:^|:)(?!TLS_)/.test(DEFAULT_CIPHERS) ? `${DEFAULT_CIPHERS}:!DHE` : DEFAULT_CIPHERS;
}

function isReadable(ecdhCurve: string): boolean {
  try {
    // Without the CAs of Node, which take time to read.
    createSecureContext({ ecdhCurve, ca: [] });
    return true;
  } catch {
    return false;
  }
}
