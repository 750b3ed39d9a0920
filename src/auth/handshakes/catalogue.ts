/** All handshakes, by name. */
import type { HandshakeName } from '../schemes/description.ts';
import { createCloudEvents } from './cloudevents.ts';
import { createDiscord } from './discord.ts';
import type { Handshake, HandshakeOptions } from './handshake.ts';
import { createMeta } from './meta.ts';
import { createMicrosoftGraph } from './microsoft-graph.ts';
import { createSlack } from './slack.ts';
import { createTwitch } from './twitch.ts';
import { createX } from './x.ts';
import { createZoom } from './zoom.ts';

/** One type of handshake, before it is compiled for a route. */
export interface HandshakeKind {
  create(options: HandshakeOptions): Handshake;
  /** The method of the handshake request, if deliveries do not use it. */
  readonly method?: 'GET' | 'OPTIONS';
  /** Whether the handshake is authenticated by a token. */
  readonly token?: 'needed' | 'optional';
  /** Default name of the query parameter that contains the token. */
  readonly parameter?: string;
  /** Authorized by a list of origins. */
  readonly hasOrigins?: true;
  /** The response is signed with the route's HMAC-SHA256 keys. */
  readonly hasMac?: true;
}

/** All types. */
export const HANDSHAKES: Readonly<Record<HandshakeName, HandshakeKind>> = {
  slack: { create: createSlack },
  zoom: { create: createZoom, hasMac: true },
  meta: { create: createMeta, method: 'GET', token: 'needed' },
  x: { create: createX, method: 'GET', hasMac: true },
  twitch: { create: createTwitch },
  discord: { create: createDiscord },
  'microsoft-graph': { create: createMicrosoftGraph, token: 'needed', parameter: 'token' },
  cloudevents: { create: createCloudEvents, method: 'OPTIONS', token: 'optional', parameter: 'access_token', hasOrigins: true },
};

/** Their names, for the config. */
export const HANDSHAKE_NAMES = Object.keys(HANDSHAKES) as HandshakeName[];

/** Compiles a route's handshake. */
export function compileHandshake(options: HandshakeOptions): Handshake {
  return HANDSHAKES[options.type].create(options);
}
