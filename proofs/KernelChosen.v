(** How many heads, if the attention may be chosen for the kernel.

    book/proofs.md.  Lemma 3 fixes the attention before the kernel, Theorem 1 chooses it after.
    Then the rank of the kernel counts: of the matrix with a row for each shift and a column for
    each pair of an input and an output channel.  On images of one size [rank + 1] heads are exact,
    and fewer than [rank] cannot come close. *)

From mathcomp Require Import all_ssreflect all_algebra reals sequences exp.
From AttnConv Require Import Attention Lemma1 Lemma3.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** The kernel as one matrix. *)
Definition unfolding (R : realType) Din Dout (Delta : seq shift) (W : shift -> 'M[R]_(Din, Dout)) :
    'M_(size Delta, Din * Dout) := \matrix_i mxvec (W Delta`_i).

Section KernelChosen.
Variables (R : realType) (Din Dout : nat) (S : seq pixel) (Delta : seq shift).
Variables (W : shift -> 'M[R]_(Din, Dout)) (b : 'rV[R]_Dout).
Hypotheses (S_uniq : uniq S) (Delta_uniq : uniq Delta).
Let U := unfolding Delta W.
Let rho := \rank U.

(** At an interior query a sum over the kernel is a sum over the image. *)
Lemma sum_interior (V : zmodType) (G : shift -> pixel -> V) q : interior S Delta q ->
  \sum_(k <- S) (if k - q \in Delta then G (k - q) k else 0) =
  \sum_(delta <- Delta) G delta (q + delta).
Proof.
move=> qS; rewrite -big_mkcond /= -big_filter.
rewrite -(perm_big _ (_ : perm_eq [seq q + d | d <- Delta] _)) /= ?big_map.
  by apply: eq_bigr => d _; rewrite [q + d]addrC addrK addrC.
apply: uniq_perm => [||k]; rewrite ?filter_uniq ?map_inj_uniq //; first exact: addrI.
rewrite mem_filter; apply/mapP/andP => [[d dD ->]|[kD _]].
  by rewrite qS // [q + d]addrC addrK.
by exists (k - q); rewrite // addrC subrK.
Qed.

(** The kernel in parts: [W_delta = sum_j share_delta,j part_j]. *)
Let share (delta : shift) (j : 'I_rho) : R :=
  \sum_(i < size Delta | Delta`_i == delta) col_base U i j.
Let part (j : 'I_rho) : 'M[R]_(Din, Dout) := vec_mx (row j (row_base U)).

Lemma parts delta : delta \in Delta -> W delta = \sum_j share delta j *: part j.
Proof.
move=> dD; have iD : (index delta Delta < size Delta)%N by rewrite index_mem.
pose i := Ordinal iD; have di : Delta`_i = delta by rewrite /= nth_index.
have one j : share delta j = col_base U i j.
  rewrite /share (big_pred1 i) // => i'; rewrite -{1}di nth_uniq ?ltn_ord //.
have : row i U = row i (col_base U) *m row_base U by rewrite -row_mul mulmx_base.
rewrite rowK di => /(canRL mxvecK) ->.
rewrite mulmx_sum_row linear_sum; apply: eq_bigr => j _.
by rewrite linearZ /= one /part mxE.
Qed.

Let c : R := (1 + \sum_(delta <- Delta) \sum_j `|share delta j|)^-1.
Let weight (h : 'I_rho.+1) (delta : shift) : R :=
  1 + (if delta \in Delta then (if insub (val h) is Some j then c * share delta j else 0) else 0).

Lemma weight_gt0 h delta : 0 < weight h delta.
Proof.
rewrite /weight; case: ifP => [dD|_]; last by rewrite addr0 ltr01.
case: insubP => [j _ _|_]; last by rewrite addr0 ltr01.
set t := \sum_(delta <- Delta) \sum_j `|share delta j|.
have t0 : 0 <= t by rewrite sumr_ge0 // => d _; rewrite sumr_ge0.
have small : `|share delta j| <= t.
  rewrite /t (big_rem delta) //= (bigD1 j) //= -addrA ler_addl addr_ge0 ?sumr_ge0 // => d _.
  by rewrite sumr_ge0.
have t1 : 0 < 1 + t by rewrite ltr_paddr.
rewrite -ltr_subl_addl sub0r ltr_oppl.
apply: le_lt_trans (ler_norm _) _; rewrite normrN normrM /c -/t ger0_norm ?invr_ge0 ?ltW //.
by rewrite mulrC ltr_pdivr_mulr // mul1r (le_lt_trans small) // ltr_addr.
Qed.

Lemma expR_ln_weight h delta : expR (ln (weight h delta)) = weight h delta.
Proof. by rewrite lnK ?posrE ?weight_gt0. Qed.

Let total (h : 'I_rho.+1) : R := (size S)%:R +
  \sum_(delta <- Delta) (if insub (val h) is Some j then c * share delta (j : 'I_rho) else 0).

Lemma weight_sum h q : interior S Delta q -> \sum_(k <- S) expR (ln (weight h (k - q))) = total h.
Proof.
move=> qS; under eq_bigr do rewrite expR_ln_weight /weight.
rewrite big_split big_const_seq count_predT iter_addr_0 /=; congr (_ + _).
exact: (sum_interior (fun delta _ => if insub (val h) is Some j then c * share delta j else 0)).
Qed.

(** ** Rank and one head

    Let [D_h >= D_out], and let the kernel [W] have rank [rho]. Then [rho + 1] heads with finite
    scores, which depend only on the shift and are chosen for this kernel, are the convolution on
    images of one size (the pixels [S]), at every interior query. *)
Theorem rank_plus_one_heads Dh : (Dout <= Dh)%N ->
  exists (s : 'I_rho.+1 -> shift -> R) (Wval : 'I_rho.+1 -> 'M_(Din, Dh)) Wout bout,
  forall X q, interior S Delta q ->
  mhsa S (probabilities S (fun h q k => s h (k - q))) Wval Wout bout X q = conv Delta W b X q.
Proof.
move=> dims; have c0 : c != 0.
  rewrite invr_eq0 gt_eqF // ltr_paddr ?ltr01 // sumr_ge0 // => d _; exact: sumr_ge0.
pose V (h : 'I_rho.+1) : 'M[R]_(Din, Dout) := if insub (val h) is Some j
  then (total h / c) *: part j else - (total h / c) *: \sum_j part j.
exists (fun h delta => ln (weight h delta)), (wide_values Dh V), (wide_out R rho.+1 Dh id), b.
move=> X q qS; rewrite eq_12 /conv; congr (_ + _).
rewrite -(sum_interior (fun delta k => X k *m W delta) qS).
transitivity (\sum_h \sum_(k <- S) (weight h (k - q) / total h) *: X k *m V h).
  apply: eq_bigr => h _; rewrite value_matrix_wide // select_id mulmx1 mulmx_suml.
  by apply: eq_bigr => k _; rewrite /probabilities /softmax weight_sum // expR_ln_weight.
rewrite exchange_big /= [LHS]big_seq [RHS]big_seq; apply: eq_bigr => k kS.
have total0 h : total h != 0.
  by rewrite -(weight_sum h qS) gt_eqF // (sum_expR_gt0 _ kS).
pose s j := if k - q \in Delta then share (k - q) j else 0.
rewrite big_ord_recr /= [V ord_max]/V [weight ord_max _]/weight !insubN -?leqNgt //.
rewrite if_same addr0.
have term j : (weight (widen_ord (leqnSn rho) j) (k - q) / total (widen_ord (leqnSn rho) j)) *:
    X k *m V (widen_ord (leqnSn rho) j) = (c^-1 + s j) *: (X k *m part j).
  rewrite /V /weight (insubT (fun i => i < rho)%N (ltn_ord j)) /=.
  have -> : Sub (val j) (ltn_ord j) = j by apply: val_inj.
  rewrite -scalemxAl -scalemxAr scalerA; congr (_ *: _).
  rewrite mulrA divfK // mulrDl mul1r /s; congr (_ + _).
  by case: ifP => _; rewrite ?mul0r // mulrAC divff ?mul1r.
rewrite (eq_bigr _ (fun j _ => term j)) -scalemxAl -scalemxAr scalerA mulmx_sumr.
rewrite mul1r mulrN mulrA mulVf // mul1r scaleNr scaler_sumr -sumrB.
transitivity (\sum_j s j *: (X k *m part j)).
  by apply: eq_bigr => j _; rewrite scalerDl addrAC subrr add0r.
rewrite /s; case: ifP => [kD|_]; last by rewrite big1 // => j _; rewrite scale0r.
by rewrite (parts kD) mulmx_sumr; apply: eq_bigr => j _; rewrite -scalemxAr.
Qed.
End KernelChosen.

(** A matrix near the identity is of full rank. *)
Lemma near_identity (R : realType) n (M : 'M[R]_n) e :
  (forall i j, `|M i j - (i == j)%:R| <= e) -> n%:R * e < 1 -> \rank M = n.
Proof.
move=> near small; apply/eqP; apply: inj_row_free => v vM; apply/rowP=> j0; rewrite mxE.
pose s := \sum_j `|v 0 j|; have s0 : 0 <= s by apply: sumr_ge0.
have le j : `|v 0 j| <= e * s.
  have -> : v 0 j = - \sum_i v 0 i * (M i j - (i == j)%:R).
    under eq_bigr do rewrite mulrBr.
    rewrite sumrB (_ : \sum_i v 0 i * M i j = 0); last first.
      by have := congr1 (fun x : 'rV_n => x 0 j) vM; rewrite !mxE.
    rewrite sub0r opprK (bigD1 j) //= eqxx mulr1 big1 ?addr0 // => i /negPf->.
    by rewrite mulr0.
  rewrite normrN; apply: le_trans (ler_norm_sum _ _ _) _; rewrite mulr_sumr ler_sum // => i _.
  by rewrite normrM mulrC ler_wpmul2r.
have s_le : s <= n%:R * e * s.
  have -> : n%:R * e * s = \sum_(j < n) e * s by rewrite sumr_const card_ord -mulrA mulr_natl.
  by apply: ler_sum => j _; apply: le.
have s00 : s = 0.
  apply/eqP; rewrite eq_le s0 andbT leNgt; apply/negP => sgt0; move: s_le.
  by rewrite -{1}[s]mul1r ler_pmul2r // leNgt small.
apply/eqP; rewrite -normr_eq0 eq_le normr_ge0 andbT -s00 /s (bigD1 j0) //= ler_addl.
exact: sumr_ge0.
Qed.

(** ** The rank is needed

    For every kernel of rank [rho], bias and bound [B > 0] there is an [eps > 0] such that no layer
    with fewer than [rho] heads is within [eps] of the convolution on all images with numbers of
    size at most [B], even at a single interior query. The attention may be any numbers chosen for
    the kernel, but does not depend on the image. *)
Theorem rank_heads_needed (R : realType) Din Dh Dout (S : seq pixel) (Delta : seq shift)
    (W : shift -> 'M[R]_(Din, Dout)) (b : 'rV_Dout) (B : R) :
  uniq S -> uniq Delta -> 0 < B -> exists2 eps : R, 0 < eps &
  forall N (a : 'I_N -> pixel -> pixel -> R) (Wval : 'I_N -> 'M_(Din, Dh))
    (Wout : 'M_(N * Dh, Dout)) bout q,
  interior S Delta q ->
  (forall (X : image R Din) o, (forall k i, `|X k 0 i| <= B) ->
     `|mhsa S a Wval Wout bout X q 0 o - conv Delta W b X q 0 o| < eps) ->
  (\rank (unfolding Delta W) <= N)%N.
Proof.
move=> S_uniq Delta_uniq B0; set U := unfolding Delta W; set rho := \rank U.
have [L LC] : exists L : 'M_(rho, size Delta), L *m col_base U = 1%:M.
  by exists (pinvmx (col_base U)); apply: mulVpmx (col_base_full U).
have [Q RQ] : exists Q : 'M_(Din * Dout, rho), row_base U *m Q = 1%:M.
  by exists (pinvmx (row_base U)); apply: mulmxVp (row_base_free U).
have LUQ : L *m U *m Q = 1%:M.
  by rewrite -[X in _ *m X *m _](mulmx_base U) mulmxA LC mul1mx RQ.
have bounded m n (M : 'M[R]_(m, n)) : exists2 s, 0 <= s & forall i j, `|M i j| <= s.
  exists (\sum_i \sum_j `|M i j|) => [|i j].
    by rewrite sumr_ge0 // => ? _; apply: sumr_ge0.
  rewrite (bigD1 i) //= (bigD1 j) //= -addrA ler_addl addr_ge0 ?sumr_ge0 // => ? _.
  exact: sumr_ge0.
have [sL sL0 L_le] := bounded _ _ L; have [sQ sQ0 Q_le] := bounded _ _ Q.
pose K : R := \sum_(j < Din * Dout) \sum_(i < size Delta) sL * sQ.
have K0 : 0 <= K by do 2![apply: sumr_ge0 => ? _]; apply: mulr_ge0.
pose eps := B / (2%:R * (1 + rho%:R * K)).
have den0 : 0 < 1 + rho%:R * K by rewrite ltr_paddr ?ltr01 // mulr_ge0 ?ler0n.
exists eps => [|N a Wval Wout bout q qS close]; first by rewrite divr_gt0 // mulr_gt0 ?ltr0n.
pose A : 'M[R]_(size Delta, N) := \matrix_(i, h) a h q (q + Delta`_i).
pose V : 'M[R]_(N, Din * Dout) := \matrix_h mxvec (value_matrix Wval Wout h).
have e2 : 2%:R * eps / B = (1 + rho%:R * K)^-1.
  rewrite /eps; move: (1 + _) => den; apply: (canLR (mulfK _)); first by rewrite gt_eqF.
  by rewrite invfM mulrCA (mulrA 2%:R) divff ?pnatr_eq0 // mul1r mulrC.
have near i r : `|(A *m V) i r - U i r| <= 2%:R * eps / B.
  case/mxvec_indexP: r => r o; pose c := q + Delta`_i.
  have cS : c \in S by apply/qS/mem_nth.
  pose X k : 'rV[R]_Din := (k == c)%:R *: (B *: delta_mx 0 r).
  have XB k r' : `|X k 0 r'| <= B.
    have B0' := ltW B0; rewrite !mxE eqxx /=.
    by case: (k == c); case: (r' == r); rewrite /= ?mulr1 ?mulr0 ?mul1r ?mul0r ?normr0 ?ger0_norm.
  have black (k : pixel) r' : `|(0 : 'rV[R]_Din) 0 r'| <= B by rewrite mxE normr0 ltW.
  have := close X o XB; have := close (fun _ => 0) o black.
  have -> : mhsa S a Wval Wout bout (fun _ => 0) q 0 o = bout 0 o.
    rewrite eq_12 big1 ?add0r // => h _; rewrite big1 ?mul0mx // => k _; exact: scaler0.
  have -> : conv Delta W b (fun _ => 0) q 0 o = b 0 o.
    by rewrite /conv big1 ?add0r // => d _; rewrite mul0mx.
  have -> : conv Delta W b X q 0 o = B * U i (mxvec_index r o) + b 0 o.
    rewrite /conv mxE (bigD1_seq Delta`_i) ?mem_nth //= big1 ?addr0 => [|d di].
      by rewrite /X eqxx scale1r -scalemxAl -rowE !mxE mxvecE.
    by rewrite /X (inj_eq (addrI _)) (negPf di) scale0r mul0mx.
  have -> : mhsa S a Wval Wout bout X q 0 o = B * (A *m V) i (mxvec_index r o) + bout 0 o.
    rewrite eq_12 mxE summxE; congr (_ + _); rewrite [(A *m V) _ _]mxE mulr_sumr.
    apply: eq_bigr => h _; rewrite [A _ _]mxE [V _ _]mxE mxvecE.
    have -> : \sum_(k <- S) a h q k *: X k = a h q c *: (B *: delta_mx 0 r).
      rewrite -(sum_one_hot (fun k => a h q k *: (B *: delta_mx 0 r)) S_uniq cS).
      by apply: eq_bigr => k _; rewrite [LHS]scalerA [RHS]scalerA mulrC.
    by rewrite -!scalemxAl -rowE !mxE [RHS]mulrCA.
  move: ((A *m V) i _) (U i _) (bout 0 o) (b 0 o) => x y s t st close_x.
  rewrite ler_pdivl_mulr // -[X in _ * X](ger0_norm (ltW B0)) -normrM mulrC.
  have -> : B * (x - y) = (B * x + s - (B * y + t)) - (s - t).
    by rewrite opprD addrACA addrK mulrBr.
  apply: le_trans (ler_norm_sub _ _) _; rewrite mulr_natl mulr2n.
  by rewrite ler_add // ltW.
have entries i j : `|(L *m (A *m V) *m Q) i j - (i == j)%:R| <= K * (2%:R * eps / B).
  have -> : (L *m (A *m V) *m Q) i j - (i == j)%:R = (L *m (A *m V - U) *m Q) i j.
    by rewrite mulmxBr mulmxBl LUQ !mxE.
  rewrite mxE mulr_suml; apply: le_trans (ler_norm_sum _ _ _) (ler_sum _ _) => l _.
  rewrite mxE !mulr_suml; apply: le_trans (ler_norm_sum _ _ _) (ler_sum _ _) => k _.
  have D_le : `|(A *m V - U) k l| <= 2%:R * eps / B.
    by have := near k l; rewrite [(A *m V - U) k l]mxE [(- U) k l]mxE.
  rewrite 2!normrM mulrAC; apply: ler_pmul D_le; rewrite ?mulr_ge0 //.
  exact: ler_pmul.
have small : rho%:R * (K * (2%:R * eps / B)) < 1.
  by rewrite e2 mulrA ltr_pdivr_mulr // mul1r ltr_addr ltr01.
rewrite -(near_identity entries small) (leq_trans (mxrankM_maxl _ _)) //.
by rewrite (leq_trans (mxrankM_maxr _ _)) // (leq_trans (mxrankM_maxr _ _)) // rank_leq_row.
Qed.

(** ** K^2 heads are needed, within epsilon too

    If [D_in D_out] is at least the number of shifts, [K^2], some kernel needs as many heads as it
    has shifts, in the sense of [rank_heads_needed]. *)
Theorem K2_heads_needed (R : realType) Din Dh Dout (S : seq pixel) (Delta : seq shift) (B : R) :
  uniq S -> uniq Delta -> (size Delta <= Din * Dout)%N -> 0 < B ->
  exists W : shift -> 'M[R]_(Din, Dout), forall b, exists2 eps : R, 0 < eps &
  forall N (a : 'I_N -> pixel -> pixel -> R) (Wval : 'I_N -> 'M_(Din, Dh))
    (Wout : 'M_(N * Dh, Dout)) bout q,
  interior S Delta q ->
  (forall (X : image R Din) o, (forall k i, `|X k 0 i| <= B) ->
     `|mhsa S a Wval Wout bout X q 0 o - conv Delta W b X q 0 o| < eps) ->
  (size Delta <= N)%N.
Proof.
move=> S_uniq Delta_uniq dims B0; pose E : 'M[R]_(size Delta, Din * Dout) := pid_mx (size Delta).
pose W delta : 'M[R]_(Din, Dout) :=
  if insub (index delta Delta) is Some i then vec_mx (row i E) else 0.
exists W => b; have UE : unfolding Delta W = E.
  apply/row_matrixP=> i; rewrite rowK /W index_uniq //.
  rewrite (insubT (fun k => k < size Delta)%N (ltn_ord i)) /=.
  by rewrite vec_mxK; congr (row _ E); apply: val_inj.
have [eps eps0 needs] := @rank_heads_needed R Din Dh Dout S Delta W b B S_uniq Delta_uniq B0.
exists eps => // N a Wval Wout bout q qS close; have := needs N a Wval Wout bout q qS close.
by rewrite UE rank_pid_mx.
Qed.
