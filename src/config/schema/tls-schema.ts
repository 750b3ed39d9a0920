/** The schema of TLS on a port of ours. */
import * as z from 'zod';
import { filePath } from './scalars.ts';

const certificate = {
  certFile: filePath.describe('Certificate chain, PEM, our own first.'),
  keyFile: filePath.describe('Its key, PEM.'),
};

/** Certificates by name, client certificates, versions. */
export const portTls = z.strictObject({
  ...certificate,
  more: z
    .array(z.strictObject(certificate))
    .default([])
    .describe('Further pairs; the name a client asks for (SNI) picks the one that is valid for it, else the first.'),
  clientCaFile: filePath.optional().describe('Authorities of client certificates, PEM; clients are asked for one.'),
  clientCrlFile: filePath
    .optional()
    .describe(
      'Revocation lists (CRLs) of those CAs, PEM: each CA that signs a certificate of a chain needs a list that has not expired, or all its clients are rejected.',
    ),
  clientCertificate: z
    .enum(['require', 'request'])
    .default('require')
    .describe('Whether clients without a valid certificate are turned away.'),
  minVersion: z.enum(['1.2', '1.3']).default('1.2').describe('Oldest version of TLS.'),
});

/** On the data port HTTP/2 is spoken, too. */
export const listenTls = portTls.extend({
  http2: z.boolean().default(true).describe('Offer HTTP/2 beside HTTP/1.1 (ALPN).'),
});

/** What a route asks of a client's certificate. */
export const clientCertificate = z.strictObject({
  names: z
    .array(
      z
        .string()
        .regex(/^(?:DNS|URI|email|IP Address|CN):.+$/, 'a name is written with its kind: DNS:, URI:, email:, IP Address: or CN:'),
    )
    .min(1)
    .optional()
    .describe(
      'The certificate must hold one of these, such as URI:spiffe://prod/billing or DNS:client.example. Left out: any name.',
    ),
  forward: z.boolean().default(false).describe('Hand the certificate to the app, by Client-Cert (RFC 9440).'),
});
