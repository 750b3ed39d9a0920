import { expect, test } from 'vitest';
import type { ParsedHead } from '../../../../../src/core/request.ts';
import { createClientCertificateGate } from '../../../../../src/gateway/pipeline/gates/client-certificate.ts';

test.each([
  ['DNS:Client.Example', 'DNS:client.example', true],
  ['IP Address:2001:DB8:0:0:0:0:0:1', 'IP Address:2001:db8::1', true],
  ['IP Address:192.0.2.1', 'IP Address:192.0.2.1', true],
  ['URI:spiffe://prod/Billing', 'URI:spiffe://prod/billing', false],
  ['CN:Client', 'CN:client', false],
  ['CN:2001:DB8:0:0:0:0:0:1', 'CN:2001:db8::1', false],
  ['DNS:client.example', 'CN:client.example', false],
])('the name %s of a certificate, with %s in the config: %s', (name, configured, isAllowed) => {
  const gate = createClientCertificateGate({ names: [configured] });
  const head = { client: { certificate: { names: [name], raw: Buffer.alloc(1) } } } as unknown as ParsedHead;
  const found = gate.check(head);
  if (isAllowed) expect(found).toBe(name);
  else expect(found).toMatchObject({ reason: 'certificate_not_allowed' });
});
