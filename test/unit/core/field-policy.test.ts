import { describe, expect, test } from 'vitest';
import { decideFieldAction } from '../../../src/core/field-policy.ts';

const OPEN = { forwardAuthorization: false };
const USERS = { forwardAuthorization: false, user: 'forward' } as const;
const CERTIFICATES = { forwardAuthorization: false, certificate: 'hide' } as const;
/** Written by gateways: APISIX, geOrchestra, Istio, CAS, API Gateway and others. */
const OF_GATEWAYS = [
  'sec-username',
  'sec-roles',
  'sec-istio-auth-userinfo',
  'x-jwt-payload',
  'cas-user',
  'x-proxy-remote-user',
  'x-sso-user',
  'x-tls-client-cert',
  'x-auth-id',
  'x-auth-name',
  'x-auth-role',
  'x-apigateway-event',
  'x-amzn-apigateway-event',
  'x-http-destinationurl',
  'x-real-host',
  'x-userinfo',
];
/** Clients of some apps send these themselves. */
const AMBIGUOUS = [
  'x-id-token',
  'user-id',
  'user-name',
  'x-uid',
  'x-identity',
  'x-access-token',
  'x-user',
  'x-user-id',
  'x-username',
  'x-email',
  'x-gateway-user',
  'x-hasura-role',
  'user',
  'grpc-metadata-user',
];

describe('a header that could name a user', () => {
  test.each(OF_GATEWAYS)('%s reaches no app, if only gateways write it', (name) => {
    for (const settings of [OPEN, USERS, CERTIFICATES]) expect(decideFieldAction(name, settings)).not.toBe('pass');
  });

  test.each(AMBIGUOUS)('%s reaches only apps whose users the gate does not check', (name) => {
    expect(decideFieldAction(name, OPEN)).toBe('pass');
    expect([USERS, CERTIFICATES].map((settings) => decideFieldAction(name, settings))).toEqual(['checkedHere', 'checkedHere']);
  });

  test.each([
    'x-user-agent',
    'user-agent',
    'x-request-id',
    'x-token',
    'x-csrf-token',
    'sec-fetch-user-x',
    'x-grouping',
    'accept',
  ])('%s is none', (name) => {
    expect(decideFieldAction(name, USERS)).toBe(name === 'sec-fetch-user-x' ? 'checkedHere' : 'pass');
  });

  test('reaches the app if the signature is read from it', () => {
    expect(decideFieldAction('x-user-id', { ...USERS, signatureHeaders: ['x-user-id'] })).toBe('pass');
  });
});
