/** All handshakes, by name. */
import type { HandshakeName } from '../schemes/description.ts';
import type { HandshakeMac } from '../schemes/keys.ts';
import { createBraintree, createLinkedIn, createX } from './challenge-mac.ts';
import { createCloudEvents } from './cloudevents.ts';
import { createEcho, createHeaderEcho } from './echo.ts';
import type { Handshake, HandshakeOptions } from './handshake.ts';
import {
  createDiscord,
  createEventGrid,
  createFront,
  createSlack,
  createSmartcar,
  createTwitch,
  createZoom,
} from './signed-challenge.ts';
import {
  createMicrosoftGraph,
  createMonday,
  createNotion,
  createStatsig,
  createTrello,
  createWooCommerce,
} from './unsigned-request.ts';

/** One type of handshake, before it is compiled for a route. */
export interface HandshakeKind {
  create(options: HandshakeOptions): Handshake;
  /** The method of the handshake request, if deliveries do not use it. */
  readonly method?: 'GET' | 'HEAD' | 'OPTIONS';
  /** The sender signs it like a delivery. */
  readonly isSigned?: true;
  /** Whether the handshake is authenticated by a token. */
  readonly token?: 'needed' | 'optional';
  /** Default name of the query parameter that contains the token. */
  readonly parameter?: string;
  /** Authorized by a list of origins. */
  readonly hasOrigins?: true;
  /** The response is signed with the route's keys by this algorithm. */
  readonly mac?: HandshakeMac;
  /** The response names the key. */
  readonly hasPublicKey?: true;
  /** It signs any token that a caller sends, so the signed part of a delivery must be one that cannot be a token. */
  readonly signsAnyToken?: 'body' | 'text-and-body' | 'payload';
}

/** For senders that do not authenticate their request: the URL configured at the sender can contain a token. */
const IN_URL = { token: 'optional', parameter: 'token' } as const;

/** All types. */
export const HANDSHAKES: Readonly<Record<HandshakeName, HandshakeKind>> = {
  slack: { create: createSlack, isSigned: true },
  zoom: { create: createZoom, isSigned: true, mac: 'hmac-sha256' },
  meta: { create: createEcho('meta'), method: 'GET', token: 'needed' },
  x: { create: createX, method: 'GET', mac: 'hmac-sha256', signsAnyToken: 'body' },
  twitch: { create: createTwitch, isSigned: true },
  discord: { create: createDiscord, isSigned: true },
  'microsoft-graph': { create: createMicrosoftGraph, token: 'needed', parameter: 'token' },
  cloudevents: { create: createCloudEvents, method: 'OPTIONS', token: 'optional', parameter: 'access_token', hasOrigins: true },
  asana: { create: createHeaderEcho('asana'), ...IN_URL },
  braintree: {
    create: createBraintree,
    method: 'GET',
    mac: 'hmac-sha1',
    hasPublicKey: true,
    signsAnyToken: 'payload',
    ...IN_URL,
  },
  dropbox: { create: createEcho('dropbox'), method: 'GET', ...IN_URL },
  'event-grid': { create: createEventGrid, isSigned: true },
  front: { create: createFront, isSigned: true },
  linkedin: { create: createLinkedIn, method: 'GET', mac: 'hmac-sha256', signsAnyToken: 'text-and-body', ...IN_URL },
  monday: { create: createMonday, ...IN_URL },
  notion: { create: createNotion, ...IN_URL },
  nylas: { create: createEcho('nylas'), method: 'GET', ...IN_URL },
  okta: { create: createEcho('okta'), method: 'GET', ...IN_URL },
  oura: { create: createEcho('oura'), method: 'GET', token: 'needed' },
  ringcentral: { create: createHeaderEcho('ringcentral'), ...IN_URL },
  smartcar: { create: createSmartcar, isSigned: true, mac: 'hmac-sha256' },
  statsig: { create: createStatsig, ...IN_URL },
  strava: { create: createEcho('strava'), method: 'GET', token: 'needed' },
  trello: { create: createTrello, method: 'HEAD', ...IN_URL },
  woocommerce: { create: createWooCommerce, ...IN_URL },
};

/** Their names, for the config. */
export const HANDSHAKE_NAMES = Object.keys(HANDSHAKES) as HandshakeName[];

/** Whether the URL that the sender calls has the token in its query, also for deliveries, so that these must be able to have one. */
export function hasTokenInUrl(handshake: { readonly type: HandshakeName; readonly verifyToken?: unknown } | undefined): boolean {
  return handshake?.verifyToken !== undefined && HANDSHAKES[handshake.type].parameter !== undefined;
}

/** Compiles a route's handshake. */
export function compileHandshake(options: HandshakeOptions): Handshake {
  return HANDSHAKES[options.type].create(options);
}
