package io.newsfabric.publish;

import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.SocketConfigurators;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Connects to the broker at one AMQP URL.
 *
 * <p>For {@code amqps} the library accepts any certificate. Here it must be the named host's, from an
 * authority that Java trusts or that is in the PEM file of the URL's {@code cacertfile}.
 */
final class Broker extends ConnectionFactory {
  private static final int TIMEOUT_MS = 5_000;
  private static final int HEARTBEAT_SECONDS = 10;

  private boolean secure;
  private String authorities;
  private volatile Socket socket;

  /** IllegalArgumentException if {@code url} is no AMQP URL. */
  Broker(String url) {
    try {
      URI uri = new URI(url);
      if (uri.getHost() == null) {
        // Without a host the library would connect to localhost.
        throw new IllegalArgumentException("no host is in it; a / in a password is written %2F");
      }
      setUri(uri);
      if (secure) {
        useSslProtocol(authorities == null ? SSLContext.getDefault() : trusting(Path.of(authorities)));
      }
    } catch (Exception e) {
      String why = e instanceof URISyntaxException bad ? bad.getReason() : e.getMessage();
      throw new IllegalArgumentException("can't use AMQP URL " + shown(url) + ": " + shown(why));
    }
    var sockets = SocketConfigurators.builder().defaultConfigurator().add(made -> socket = made);
    // These settings would undo ConnectionFactory.enableHostnameVerification().
    setSocketConfigurator(secure ? sockets.enableHostnameVerification().build() : sockets.build());
    setAutomaticRecoveryEnabled(false);
    setRequestedHeartbeat(HEARTBEAT_SECONDS);
    setConnectionTimeout(TIMEOUT_MS);
    setHandshakeTimeout(TIMEOUT_MS);
    // The library's default is ten minutes.
    setChannelRpcTimeout(TIMEOUT_MS);
  }

  /** Cut the latest connection. An orderly close would wait for a writer whose data nobody reads. */
  void cut() {
    try {
      socket.close();
    } catch (IOException e) {
      // The connection is gone in any case.
    }
  }

  /** Called by setUri for amqps. */
  @Override
  public void useSslProtocol() { secure = true; }

  @Override
  protected void processUriQueryParameter(String name, String value) {
    if (!name.equals("cacertfile")) {
      throw new IllegalArgumentException("unknown parameter " + name);
    }
    authorities = value;
  }

  @Override
  public String toString() { return getHost() + ":" + getPort(); }

  /** The characters of {@code text} that a password can't contain. */
  private static String shown(String text) { return text.substring(text.lastIndexOf('@') + 1); }

  private static SSLContext trusting(Path authorities) throws Exception {
    KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
    trusted.load(null, null);
    try (InputStream pem = Files.newInputStream(authorities)) {
      for (Certificate authority : CertificateFactory.getInstance("X.509").generateCertificates(pem)) {
        trusted.setCertificateEntry("authority " + trusted.size(), authority);
      }
    }
    var managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    managers.init(trusted);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, managers.getTrustManagers(), null);
    return context;
  }
}
