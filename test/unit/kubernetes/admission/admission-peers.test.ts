import { once } from 'node:events';
import { createServer, type Server } from 'node:https';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { AdmissionPeers } from '../../../../src/kubernetes/admission/admission-peers.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const MAX_BYTES = 1_000;
let server: Server;
let peers: AdmissionPeers;
let client: Socket;
let socket: Socket;

beforeEach(async () => {
  server = createServer();
  const limits = { maxConnections: 8, connectionsPerSecond: 8, requestsPerSecond: 8, maxUploads: 8, maxBytes: MAX_BYTES };
  peers = new AdmissionPeers(server, { limits, maxConnections: 8, clock: new FakeClock(), onClosed: () => undefined });
  const connected = once(server, 'connection') as Promise<[Socket]>;
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  client = connect((server.address() as AddressInfo).port, '127.0.0.1').on('error', () => undefined);
  [socket] = await connected;
});
afterEach(() => {
  client.destroy();
  server.close();
  server.closeAllConnections();
});

test('a response that is not sent yet counts against the budget of its network, until its request ends', () => {
  const first = peers.admit(socket, 400, false);
  expect(first?.startResponse(500)).toBe(true);
  expect(peers.admit(socket, 101, false)).toBeUndefined();
  const second = peers.admit(socket, 50, false);
  expect(second?.startResponse(51)).toBe(false);
  second?.end();
  first?.end();
  expect(peers.admit(socket, MAX_BYTES, false)).toBeDefined();
});

test('a response to a verified caller is not limited', () => {
  const request = peers.admit(socket, 400, true);
  expect(request?.startResponse(10 * MAX_BYTES)).toBe(true);
  request?.end();
  expect(peers.admit(socket, MAX_BYTES, false)).toBeDefined();
});
