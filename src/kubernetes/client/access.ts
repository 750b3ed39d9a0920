/** How to connect to a cluster, independent of its source: the mounted service account or a kubeconfig. */

/** The credentials of one request, as plain text; between requests they are kept as Secrets. */
export interface Credentials {
  readonly token?: string;
  /** PEM, with its key. */
  readonly cert?: string;
  readonly key?: string;
}

/** A cluster's API server, and how to authenticate it. */
export interface ClusterAccess {
  /** https, or http on loopback. Its path is the prefix of every request's path. */
  readonly server: URL;
  /** PEM. Default: the CAs of the system. Read before every request, because a mounted CA can be replaced. */
  readonly ca?: string | undefined;
  readonly skipVerify?: boolean | undefined;
  /** The name in the server's certificate, if it differs from the host. */
  readonly serverName?: string | undefined;
  /** The proxy to use, in the format of the environment variables with these names. */
  readonly proxyEnv?: ProxyEnv | undefined;
  /** Header fields of every request, for example Impersonate-User. */
  readonly headers?: Readonly<Record<string, string | readonly string[]>> | undefined;
  /** Called before every request, and again with `isRejected` after a 401: then cached credentials must not be returned again. */
  credentials(isRejected?: boolean): Promise<Credentials>;
}

/** The proxy for CONNECT requests, and the hosts that are reached without it. */
export interface ProxyEnv {
  readonly HTTPS_PROXY: string;
  readonly NO_PROXY?: string | undefined;
}
