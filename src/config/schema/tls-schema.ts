/** The schema of TLS on the gate's ports. */
import { isIP } from 'node:net';
import * as z from 'zod';
import { filePath } from './scalars.ts';

const certificate = {
  certFile: filePath.describe('PEM file of the certificate chain, with the server certificate first.'),
  keyFile: filePath.describe('PEM file of the private key.'),
};

/** Server certificates, client certificates and TLS versions. */
export const portTls = z.strictObject({
  ...certificate,
  additionalCertificates: z
    .array(z.strictObject(certificate))
    .default([])
    .describe(
      'Further certificates. The one that is valid for the requested server name (SNI) is used; if none is, the first one.',
    ),
  clientCaFile: filePath
    .optional()
    .describe('PEM file of the CAs that issue client certificates. Default: clients are not asked for a certificate.'),
  clientCrlFile: filePath
    .optional()
    .describe(
      'PEM file of the certificate revocation lists (CRLs) of those CAs. Each CA in a client certificate chain needs a list that has not expired; otherwise all its clients are rejected.',
    ),
  clientCertificate: z
    .enum(['require', 'request'])
    .default('require')
    .describe('`require` rejects connections without a valid client certificate; `request` accepts them.'),
  minVersion: z.enum(['1.2', '1.3']).default('1.2').describe('Minimum TLS version.'),
});

/** Only the data port supports HTTP/2. */
export const listenTls = portTls.extend({
  http2: z.boolean().default(true).describe('Offers HTTP/2 in addition to HTTP/1.1 (ALPN).'),
});

/** A route's requirements on the client certificate. */
export const clientCertificate = z.strictObject({
  names: z
    .array(
      z
        .string()
        .regex(/^(?:DNS|URI|email|IP Address|CN):.+$/, 'a name must start with its type: DNS:, URI:, email:, IP Address: or CN:')
        .refine((text) => !text.startsWith('IP Address:') || isIP(text.slice('IP Address:'.length)) !== 0, {
          error: 'write one IPv4 or IPv6 address after IP Address:',
        }),
    )
    .min(1)
    .optional()
    .describe(
      'Names of which the certificate must contain at least one, such as URI:spiffe://prod/billing or DNS:client.example. Default: any name.',
    ),
  forward: z.boolean().default(false).describe('Forwards the certificate to the app in Client-Cert (RFC 9440).'),
});
