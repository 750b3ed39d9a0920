/** Whether who trusts these authorities accepts that server: what the API server will ask, asked before it does. */
import { X509Certificate } from 'node:crypto';
import type { EpochMilliseconds } from '../../core/clock.ts';

const PEM = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;
/** Of intermediates between a server and its authority. */
const LONGEST_CHAIN = 10;

/** The certificates in PEM text, in its order; what is none is passed over. */
export function readCertificates(pem: string): X509Certificate[] {
  return (pem.match(PEM) ?? []).flatMap((block) => {
    try {
      return [new X509Certificate(block)];
    } catch {
      return [];
    }
  });
}

/** Undefined where they do; else why not. `chain`: the server's own certificate first. */
export function findChainProblem(
  chain: readonly X509Certificate[],
  trusted: readonly X509Certificate[],
  name: string | undefined,
  now: EpochMilliseconds,
): string | undefined {
  const [server, ...intermediates] = chain;
  if (server === undefined) return 'there is no certificate yet';
  if (Date.parse(server.validTo) <= now) return `the certificate ended on ${server.validTo}`;
  if (Date.parse(server.validFrom) > now) return `the certificate begins on ${server.validFrom}`;
  if (name !== undefined && server.checkHost(name) === undefined) return `the certificate is not for ${name}`;
  if (trusted.length === 0) return 'the caBundle of the webhook configuration is empty';
  return leadsTo(server, intermediates, trusted, now)
    ? undefined
    : 'the caBundle of the webhook configuration does not hold its authority';
}

function leadsTo(
  server: X509Certificate,
  intermediates: readonly X509Certificate[],
  trusted: readonly X509Certificate[],
  now: EpochMilliseconds,
): boolean {
  let at = server;
  for (let length = 0; length < LONGEST_CHAIN; length++) {
    const last = at;
    if (trusted.some((root) => root.raw.equals(last.raw) || (isValid(root, now) && isIssuedBy(last, root)))) return true;
    const issuer = intermediates.find((each) => !each.raw.equals(last.raw) && isValid(each, now) && isIssuedBy(last, each));
    if (issuer === undefined) return false;
    at = issuer;
  }
  return false;
}

function isIssuedBy(certificate: X509Certificate, issuer: X509Certificate): boolean {
  return certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);
}

function isValid({ validFrom, validTo }: X509Certificate, now: EpochMilliseconds): boolean {
  return Date.parse(validFrom) <= now && now < Date.parse(validTo);
}
