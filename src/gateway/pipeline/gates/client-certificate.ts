/** Checks that the client presented a certificate that the route allows (mTLS). */
import { normalizeIp } from '../../../core/ip-address.ts';
import { refuse } from '../../../core/refusal.ts';
import type { CertificateGate } from './gate.ts';

/** Finds the name that the route allows. The TLS handshake verified the certificate already. */
export function createClientCertificateGate({
  names,
}: {
  /** The certificate must have one of these names; default: any certificate that the port's CAs issued. */
  readonly names?: readonly string[] | undefined;
}): CertificateGate {
  const allowed = names === undefined ? undefined : new Set(names.map(toComparable));
  return {
    check({ client }) {
      if (client.certificate === undefined) return refuse('certificate_required', client.certificateEnd ?? 'no_certificate');
      const found = client.certificate.names.find((name) => allowed === undefined || allowed.has(toComparable(name)));
      // A certificate without a name identifies nobody.
      return found ?? refuse('certificate_required', 'certificate_not_allowed');
    },
  };
}

const IP_ADDRESS = 'IP Address:';

/** DNS names have no case (RFC 5280 §7.2), and an address has several spellings. */
function toComparable(name: string): string {
  if (name.startsWith('DNS:')) return name.toLowerCase();
  const address = name.startsWith(IP_ADDRESS) ? normalizeIp(name.slice(IP_ADDRESS.length)) : undefined;
  return address === undefined ? name : `${IP_ADDRESS}${address}`;
}
